"""`oomcast gpus`: the smallest and the cheapest GPU that is enough for a job, out of the whole catalogue.

What a card changes in a capture is its compute capability (which attention kernels there are) and the number of its
multiprocessors (how reductions are split, and so their scratch). So there is one capture, or, where the first one shows
that the job's attention differs by card, one for each kind of attention kernels; one simulation for each compute
capability (convolution workspaces differ), whose figures serve all its cards, each with its own memory and context.
Then the cards that the answer names, the smallest and the cheapest that are enough, are captured themselves; where
such a capture says otherwise, the next ones are.

What a GPU costs per hour is in a CSV that the user can edit, or in the list prices that ship (`prices.csv`, each
cited).
"""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Any

from ..capture import capture, expecting
from ..devices import Gpu, all_gpus, attention_traits, context_bytes, find_gpu
from ..errors import BadInput, OomcastError, UnreadableFile
from ..estimation import Target, estimate_trace, load_interval, target_of
from ..spec import DESCRIPTIONS, Spec, takes_options
from ..trace import Phase, Trace
from .confidence import check_confidence, fits

__all__ = ["GpuChoice", "GpuRanking", "Price", "rank_gpus", "read_prices", "shipped_prices"]

# Parts of the names of the operators that a Trace tells.
_FUSED_ATTENTION = "dot_product"
_SOFTMAX = "aten._softmax"


@dataclass(frozen=True)
class GpuChoice:
    gpu: Gpu
    device_total: int
    needed: int
    """The least usable memory, context included, with which the job runs."""
    p_oom: float
    enough: bool
    """Whether the job fits at the confidence."""
    own_capture: bool
    """Whether the capture was made for this very kind of card; else the figures are those of one of its family."""
    price: Price | None

    @property
    def headroom(self) -> int:
        """Usable memory beyond the least that the job runs with."""
        return self.gpu.usable_memory - self.needed


@dataclass(frozen=True)
class GpuRanking:
    """`choices` from the smallest card to the largest."""

    job: str
    confidence: float
    choices: tuple[GpuChoice, ...]
    smallest: str | None
    """The card with the least memory that is enough."""
    cheapest: str | None
    """Among those with a price."""
    captures: int
    failed: Mapping[str, str]
    """Compute capability → why the job could not be captured for it."""
    environment: str
    not_supported: tuple[str, ...]
    """Cards that were not looked at: the environment's usual wheels have no code for them."""
    seconds: float

    @property
    def fits(self) -> bool:
        return self.smallest is not None


@takes_options(*DESCRIPTIONS, without=("device", "calibration"))
def rank_gpus(
    job: Any,
    *,
    batch_size: int | None = None,
    confidence: float = 0.95,
    prices: Mapping[str, Price] | None = None,
    gpus: tuple[Gpu, ...] | None = None,
    **options: Any,
) -> GpuRanking:
    """Every GPU of the catalogue that the environment runs on (or all of `gpus`) with headroom, P(OOM) and price.

    `prices` are those of `read_prices`; without them the dated list prices that ship. The other options are those of
    `oomcast.estimate`, without the device. Where a calibration is kept for a device, it is used.
    """
    check_confidence(confidence)
    started = time.perf_counter()
    listed = tuple(gpus) if gpus is not None else all_gpus()
    if not listed:
        raise BadInput("there is no GPU to choose from.")
    spec = Spec.read_sized(job, batch_size, device=listed[0].name, **options)
    if spec.place.calibration is not None:
        raise BadInput("one calibration file cannot serve every GPU; leave it out, those that are kept are used.")
    target = target_of(spec)
    known = shipped_prices() if prices is None else prices
    stack = target.stack
    missing = tuple(gpu.name for gpu in listed if gpus is None and not stack.supports(gpu))
    listed = tuple(gpu for gpu in listed if gpu.name not in missing)
    if not listed:
        raise BadInput(f"no GPU of the catalogue runs the environment {stack.name}; name another --environment.")
    ranking = _Ranking(spec, target, confidence, known)
    choices = ranking.choices_among(listed)
    return GpuRanking(
        job=spec.workload.job.reference,
        confidence=confidence,
        choices=choices,
        smallest=_name(_smallest(choices)),
        cheapest=_name(_cheapest(choices)),
        captures=ranking.captures,
        failed=ranking.failed,
        environment=stack.environment,
        not_supported=missing,
        seconds=round(time.perf_counter() - started, 3),
    )


class _Ranking:
    def __init__(self, spec: Spec, target: Target, confidence: float, prices: Mapping[str, Price]) -> None:
        self.spec = spec
        self.target = target
        self.confidence = confidence
        self.prices = prices
        self.captures = 0
        self.failed: dict[str, str] = {}
        self._traces: dict[tuple[Any, ...], Trace] = {}
        self._spreads: dict[str, float] = {}
        """How wide the interval of the job is on the cards that it was simulated for."""

    def choices_among(self, gpus: tuple[Gpu, ...]) -> tuple[GpuChoice, ...]:
        choices: dict[str, GpuChoice] = {}
        typical = _middle([gpu for gpu in gpus if gpu.compute_capability >= (8, 0)] or list(gpus))
        first = self._trace_of(typical)
        attention = _attention_in(first)
        families = list(_groups(gpus, lambda gpu: _same_kernels(gpu, typical, attention)))
        with expecting(self._spec_on(_middle(kin)) for kin in families if typical not in kin):
            for kin in families:
                trace = first if typical in kin else self._trace_of(_middle(kin))
                for alike in _groups(tuple(kin), lambda gpu: gpu.compute_capability) if trace is not None else []:
                    measured = self._choice(_middle(alike), trace)
                    choices.update({gpu.name: self._like(gpu, measured) for gpu in alike})
        if not choices:
            raise BadInput(next(iter(self.failed.values())))
        ordered = _ordered(choices)
        # A card is only named where its own capture agrees; each turn makes one more choice sure.
        for pick in (_smallest, _cheapest):
            while (named := pick(ordered)) is not None and not named.own_capture:
                own = self._trace_of(named.gpu)
                if own is None:
                    del choices[named.gpu.name]
                else:
                    choices[named.gpu.name] = self._choice(named.gpu, own)
                ordered = _ordered(choices)
        return ordered

    def _spec_on(self, gpu: Gpu) -> Spec:
        return self.spec.with_place(device=gpu.name)

    def _trace_of(self, gpu: Gpu) -> Trace | None:
        key = _capture_key(gpu)
        if key not in self._traces:
            self.captures += 1
            try:
                self._traces[key] = capture(self._spec_on(gpu))
            except OomcastError as error:
                self.failed[gpu.sm] = str(error)
                return None
        return self._traces[key]

    def _choice(self, gpu: Gpu, trace: Trace | None) -> GpuChoice:
        """By a simulation with all of this card's own rules."""
        assert trace is not None
        estimate = estimate_trace(trace, self.target.on(gpu))
        basis = estimate.interval_basis
        self._spreads[gpu.name] = 1.0 if basis is None else basis.of_the_job
        return GpuChoice(
            gpu=gpu,
            device_total=estimate.device_total,
            needed=estimate.least_capacity,
            p_oom=estimate.p_oom,
            enough=fits(estimate, self.confidence),
            own_capture=self._traces.get(_capture_key(gpu)) is trace,
            price=self.prices.get(gpu.name),
        )

    def _like(self, gpu: Gpu, measured: GpuChoice) -> GpuChoice:
        """A card of the same kind: the same allocator's need, beside the context of its own size."""
        if gpu is measured.gpu:
            return measured
        stack = self.target.stack
        more = context_bytes(gpu, stack) - context_bytes(measured.gpu, stack)
        needed = measured.needed + more
        spread = self._spreads[measured.gpu.name] * (1.0 if gpu.maker is None else gpu.maker.spread)
        p_oom = load_interval(False).widened(spread).chance_above(needed, gpu.usable_memory)
        return GpuChoice(
            gpu=gpu,
            device_total=measured.device_total + more,
            needed=needed,
            p_oom=p_oom,
            enough=needed <= gpu.usable_memory and p_oom <= 1 - self.confidence + 1e-9,
            own_capture=False,
            price=self.prices.get(gpu.name),
        )


def _groups(gpus: Iterable[Gpu], key: Callable[[Gpu], Hashable]) -> list[list[Gpu]]:
    groups: dict[Hashable, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(key(gpu), []).append(gpu)
    return list(groups.values())


def _middle(gpus: list[Gpu]) -> Gpu:
    """The card with the middle number of multiprocessors: what reductions take grows with that number."""
    by_size = sorted(gpus, key=lambda gpu: (gpu.multiprocessors, gpu.name))
    return by_size[len(by_size) // 2]


class _Attention(Enum):
    """What one capture shows of a job's attention."""

    NONE = "the job has none"
    SINGLE = "memory-efficient kernels in fp32, no others"
    ANY = "other kernels, or kernels that do not show: a plain softmax may be attention where no fused kernel fits"


def _attention_in(trace: Trace | None) -> _Attention:
    if trace is None:
        return _Attention.ANY
    forward = [made for made in trace.allocations if made.phase is Phase.FORWARD]
    if any(_SOFTMAX in made.operator for made in forward):
        return _Attention.ANY
    fused = {made.dtype for made in forward if _FUSED_ATTENTION in made.operator}
    if not fused:
        return _Attention.NONE
    return _Attention.ANY if fused & {"float16", "bfloat16"} else _Attention.SINGLE


def _same_kernels(gpu: Gpu, captured: Gpu, attention: _Attention) -> Hashable:
    """Equal for cards on which the job, whose capture for another card is known, runs the same attention kernels."""
    if attention is _Attention.NONE:
        return True
    traits = attention_traits(gpu.compute_capability)
    if attention is _Attention.SINGLE and traits.takes_single_like(attention_traits(captured.compute_capability)):
        return True
    return traits


def _capture_key(gpu: Gpu) -> tuple[Any, ...]:
    """Equal for cards with the same capture, save for jobs that read the card's name or size themselves."""
    return gpu.compute_capability, gpu.multiprocessors, gpu.max_threads_per_multiprocessor


def _ordered(choices: Mapping[str, GpuChoice]) -> tuple[GpuChoice, ...]:
    return tuple(sorted(choices.values(), key=lambda choice: (choice.gpu.usable_memory, choice.gpu.name)))


def _smallest(choices: tuple[GpuChoice, ...]) -> GpuChoice | None:
    return next((choice for choice in choices if choice.enough), None)


def _cheapest(choices: tuple[GpuChoice, ...]) -> GpuChoice | None:
    priced = [(choice.price.per_hour, n, choice) for n, choice in enumerate(choices) if choice.enough and choice.price]
    return min(priced)[2] if priced else None


def _name(choice: GpuChoice | None) -> str | None:
    return None if choice is None else choice.gpu.name


_COLUMNS = ("gpu", "price_per_hour")
_FILE = "prices.csv"
_LARGEST = 1 << 20


@dataclass(frozen=True)
class Price:
    """Of one GPU for one hour."""

    gpu: str
    per_hour: float
    currency: str
    provider: str
    instance: str
    as_of: str


def shipped_prices() -> Mapping[str, Price]:
    """On-demand list prices of single GPUs; they are dated and will have changed."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    return _lowest_prices(text, _FILE)


def read_prices(path: str | os.PathLike[str]) -> Mapping[str, Price]:
    """GPU → its cheapest row. Columns: gpu, price_per_hour; and if wanted currency, provider, instance, as_of."""
    source = Path(path)
    try:
        with source.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot read {source}: {error.strerror or error}.") from error
    if len(data) > _LARGEST:
        raise UnreadableFile(f"{source} is too large for a list of prices.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(f"{source} is not a CSV file in UTF-8.") from error
    return _lowest_prices(text, str(source))


def _lowest_prices(text: str, name: str) -> Mapping[str, Price]:
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        missing = [column for column in _COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise UnreadableFile(f"{name} has no column {missing[0]}; prices need {' and '.join(_COLUMNS)}.")
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UnreadableFile(f"{name} is not a CSV file: {error}.") from error
    found: dict[str, Price] = {}
    for line, row in rows:
        price = _price(row, f"{name}, line {line}")
        known = found.get(price.gpu)
        if known is not None and known.currency != price.currency:
            raise BadInput(f"{name}, line {line}: prices in {price.currency} and {known.currency} cannot be compared.")
        if known is None or price.per_hour < known.per_hour:
            found[price.gpu] = price
    return found


def _price(row: Mapping[str, str | None], where: str) -> Price:
    written = (row.get("price_per_hour") or "").strip()
    try:
        per_hour = float(written)
    except ValueError:
        per_hour = math.nan
    if not math.isfinite(per_hour) or per_hour < 0:
        raise BadInput(f"{where}: {written!r} is not a price per hour; write a number like 1.59.")
    try:
        gpu = find_gpu((row.get("gpu") or "").strip())
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None
    rest = {name: (row.get(name) or "").strip() for name in ("currency", "provider", "instance", "as_of")}
    return Price(gpu.name, per_hour, rest["currency"] or "USD", rest["provider"], rest["instance"], rest["as_of"])
