"""The smallest GPU that is enough: one job on every card of the catalogue.

What a card changes in a capture is its compute capability (which attention kernels there are) and the number of its
multiprocessors (how reductions are split, and so their scratch). So there is one capture, or, where the first one shows
that the job's attention differs by card, one for each kind of attention kernels; one simulation for each compute
capability (convolution workspaces differ), and all its cards are judged with their own memory and context. Then those
that matter, the smallest and the cheapest that are enough, are captured themselves, until the ones named are ones whose
own capture says so.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..capture import capture
from ..devices import Gpu, all_gpus, context_bytes
from ..errors import BadInput, OomcastError
from ..estimate import Target, estimate_trace, load_interval
from ..estimate._calibration_file import calibration_for
from ..trace import Phase, Trace
from ..workload import Workload
from ._judge import check_confidence, fits
from ._prices import Price, shipped_prices
from ._setup import prepare

__all__ = ["GpuChoice", "GpuRanking", "rank_gpus"]


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


def rank_gpus(
    job: Any,
    *,
    batch_size: int,
    confidence: float = 0.95,
    prices: Mapping[str, Price] | None = None,
    gpus: tuple[Gpu, ...] | None = None,
    use_calibration: bool = True,
    **options: Any,
) -> GpuRanking:
    """Every GPU of the catalogue that the environment runs on (or all of `gpus`) with headroom, P(OOM) and price.

    `prices` are those of `read_prices`; without them the dated list prices that ship. The other options are those of
    `oomcast.estimate`, without the device. A device that a calibration is kept for is judged with it.
    """
    check_confidence(confidence)
    started = time.perf_counter()
    listed = tuple(gpus) if gpus is not None else all_gpus()
    if not listed:
        raise BadInput("there is no GPU to choose from.")
    first = prepare(job, device=listed[0].name, use_calibration=False, batch_size=batch_size, **options)
    known = shipped_prices() if prices is None else prices
    stack = first.target.stack
    missing = tuple(gpu.name for gpu in listed if gpus is None and not stack.supports(gpu))
    listed = tuple(gpu for gpu in listed if gpu.name not in missing)
    if not listed:
        raise BadInput(f"no GPU of the catalogue runs the environment {stack.name}; name another --environment.")
    ranking = _Ranking(first.workload, first.target, _Settings(confidence, known, use_calibration))
    choices = ranking.judge(listed)
    return GpuRanking(
        job=first.workload.job.reference,
        confidence=confidence,
        choices=choices,
        smallest=_name(_smallest(choices)),
        cheapest=_name(_cheapest(choices)),
        captures=ranking.captures,
        failed=ranking.failed,
        environment=stack.name,
        not_supported=missing,
        seconds=round(time.perf_counter() - started, 3),
    )


class _Settings(NamedTuple):
    confidence: float
    prices: Mapping[str, Price]
    use_calibration: bool


class _Ranking:
    def __init__(self, workload: Workload, target: Target, settings: _Settings) -> None:
        self.workload = workload
        self.target = target
        self.settings = settings
        self.captures = 0
        self.failed: dict[str, str] = {}
        self._traces: dict[tuple[Any, ...], Trace] = {}

    def judge(self, gpus: tuple[Gpu, ...]) -> tuple[GpuChoice, ...]:
        choices: dict[str, GpuChoice] = {}
        typical = _middle([gpu for gpu in gpus if gpu.compute_capability >= (8, 0)] or list(gpus))
        first = self._trace_of(typical)
        for kin in _groups(gpus, lambda gpu: _kernels_of(gpu, typical, first)):
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

    def _trace_of(self, gpu: Gpu) -> Trace | None:
        key = _capture_key(gpu)
        if key not in self._traces:
            self.captures += 1
            try:
                self._traces[key] = capture(self.workload, gpu, self.target.time_limit)
            except OomcastError as error:
                self.failed[gpu.sm] = str(error)
                return None
        return self._traces[key]

    def _choice(self, gpu: Gpu, trace: Trace | None) -> GpuChoice:
        """By a simulation with all of this card's own rules."""
        assert trace is not None
        target = dataclasses.replace(self.target, gpu=gpu)
        if self.settings.use_calibration:
            target = dataclasses.replace(target, calibration=calibration_for(gpu, target.stack))
        estimate = estimate_trace(trace, target)
        return GpuChoice(
            gpu=gpu,
            device_total=estimate.device_total,
            needed=estimate.least_capacity,
            p_oom=estimate.p_oom,
            enough=fits(estimate, self.settings.confidence),
            own_capture=self._traces.get(_capture_key(gpu)) is trace,
            price=self.settings.prices.get(gpu.name),
        )

    def _like(self, gpu: Gpu, measured: GpuChoice) -> GpuChoice:
        """A card of the same kind: the same allocator's need, beside the context of its own size."""
        if gpu is measured.gpu:
            return measured
        stack = self.target.stack
        more = context_bytes(gpu, stack) - context_bytes(measured.gpu, stack)
        needed = measured.needed + more
        p_oom = load_interval(False).chance_above(needed, gpu.usable_memory)
        return GpuChoice(
            gpu=gpu,
            device_total=measured.device_total + more,
            needed=needed,
            p_oom=p_oom,
            enough=needed <= gpu.usable_memory and p_oom <= 1 - self.settings.confidence + 1e-9,
            own_capture=False,
            price=self.settings.prices.get(gpu.name),
        )


def _groups(gpus: Iterable[Gpu], key: Callable[[Gpu], Hashable]) -> list[list[Gpu]]:
    groups: dict[Hashable, list[Gpu]] = {}
    for gpu in gpus:
        groups.setdefault(key(gpu), []).append(gpu)
    return list(groups.values())


def _middle(gpus: list[Gpu]) -> Gpu:
    """Its reductions differ least from all the others'."""
    by_size = sorted(gpus, key=lambda gpu: (gpu.multiprocessors, gpu.name))
    return by_size[len(by_size) // 2]


def _kernels_of(gpu: Gpu, other: Gpu, trace: Trace | None) -> Hashable:
    """Equal for cards on which torch takes the same attention kernels for this job, as its Trace on another tells."""
    major, minor = gpu.compute_capability
    forward = [made for made in trace.allocations if made.phase is Phase.FORWARD] if trace is not None else []
    fused = {made.dtype for made in forward if "dot_product" in made.operator}
    plain = trace is None or any("aten._softmax" in made.operator for made in forward)
    if not fused and not plain:
        return "no attention"
    # What runs in fp32 from Ampere on is the memory-efficient kernel, and before it that asks for less.
    if other.compute_capability >= (8, 0) and not plain and not fused & {"float16", "bfloat16"}:
        return "before sm_50" if major < 5 else "memory-efficient"
    if major < 8:
        return "before sm_50" if major < 5 else "before sm_80"
    return (major, minor >= 6) if major == 8 else major


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
