"""Memory over one number of a job, or over two: what the sliders and the map of `oomcast serve` show.

A few values are captured. Between them, never beyond them, the job's Trace is interpolated (`TraceFamily`) and
estimated whole, so that a value costs a simulation instead of a capture. Each answer says which of the two it is. How
many GPUs share a job is no number of its Trace: there each value is captured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture import capture
from ..errors import BadInput, TookTooLong
from ..estimation import Estimate, Simulator, estimate_rank, estimate_spec, kinds_of_ranks, target_of
from ..spec import DESCRIPTIONS, Spec, Workload, takes_options
from ..trace import Trace
from .parameters import find_parameter
from .trace_family import TraceFamily

__all__ = ["Cell", "Map", "Sweep", "SweepPoint", "memory_map", "stops_of", "sweep"]

_LIKE = 0.9
"""The share of tensors that captures must have in common for values between them to be trusted (as in `largest`)."""
_GPUS = "gpus"
_STOPS: dict[str, tuple[int, ...]] = {
    "batch-size": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
    "seq-len": (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192),
    "input-size": (64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 448, 512, 640, 768),
    "lora-rank": (4, 8, 16, 32, 64, 128, 256),
    "gpus": (2, 4, 8, 16, 32, 64, 128, 256),
}
_MAP_STOPS = 6
"""Of each axis of a map, and of the numbers of GPUs, around the job's own value."""
_TRIES = 6
"""Values that are tried for an end of the range, where the job refuses the outermost ones."""


@dataclass(frozen=True)
class SweepPoint:
    """The Estimate at one value, without its reasons. Bytes."""

    value: int
    captured: bool
    """Whether a capture of this very value stands behind it; else it is interpolated."""
    peak_allocated: int
    peak_reserved: int
    device_total: int
    low: int
    high: int
    will_not_exceed: int
    least_capacity: int
    p_oom: float
    verdict: str
    breakdown: dict[str, int]


@dataclass(frozen=True)
class Sweep:
    """`points` in order; values that lie outside of what the job takes, or of what was captured, are absent."""

    job: str
    parameter: str
    device: str
    device_usable: int
    likeness: float | None
    """The share of tensors that neighbouring captures have in common; None where every value was captured."""
    points: tuple[SweepPoint, ...]


@dataclass(frozen=True)
class Cell:
    batch_size: int
    size: int
    device_total: int
    p_oom: float
    verdict: str
    captured: bool


@dataclass(frozen=True)
class Map:
    """The batch size against `parameter`: the sequence length, the side of an image, or the rank of a LoRA."""

    job: str
    parameter: str
    device: str
    device_usable: int
    cells: tuple[Cell, ...]


def stops_of(parameter: str) -> tuple[int, ...]:
    """The values that are looked at, unless others are asked for."""
    if parameter not in _STOPS:
        raise BadInput(f"there is no slider for {parameter!r}; there are {', '.join(_STOPS)}.")
    return _STOPS[parameter]


@takes_options(*DESCRIPTIONS)
def sweep(
    job: Any, *, device: str, parameter: str = "batch-size", values: Sequence[int] | None = None, **options: Any
) -> Sweep:
    """The job's memory at each of the values, from three captures: of the smallest, of the largest, and of the job's
    own value. `parameter` is `batch-size`, `seq-len`, `input-size`, `lora-rank`, or `gpus`: how many GPUs of one node
    share the job, each number captured by itself."""
    spec = Spec.read(job, device=device, **options)
    if parameter == _GPUS:
        return _over_gpus(spec, values)
    spec = _one_rank(spec)
    wanted = find_parameter(parameter, spec.workload, 1)
    stops = sorted(set(stops_of(parameter) if values is None else values))
    own = _own_value(parameter, spec.workload)
    family = _family(spec, wanted.workload, stops, own, wanted.degree)
    target = target_of(spec)
    first, last = min(family.captured), max(family.captured)
    shown = sorted({*(value for value in stops if first <= value <= last), *family.captured})
    points = tuple(_point(value, value in family, estimate_rank(spec, family.at(value))) for value in shown)
    return Sweep(
        spec.workload.job.reference,
        parameter,
        target.gpu.name,
        target.gpu.usable_memory,
        round(family.likeness(), 4),
        points,
    )


@takes_options(*DESCRIPTIONS)
def memory_map(job: Any, *, device: str, parameter: str, **options: Any) -> Map:
    """Which batch sizes fit with which sequence lengths (`seq-len`), image sizes (`input-size`) or ranks (`lora-rank`):
    around the job's own values, from three captures at each of two batch sizes."""
    spec = _one_rank(Spec.read(job, device=device, **options))
    if parameter in ("batch-size", _GPUS):
        raise BadInput("a map has the batch size on one side; the other is seq-len, input-size or lora-rank.")
    sizes = _around(stops_of(parameter), _own_value(parameter, spec.workload))
    batches = _around(stops_of("batch-size"), spec.workload.batch_size)
    target = target_of(spec)
    by_batch: dict[int, TraceFamily] = {}
    for batch in _ends(batches):
        workload = dataclasses.replace(spec.workload, batch_size=batch)
        wanted = find_parameter(parameter, workload, 1)
        try:
            by_batch[batch] = _family(spec, wanted.workload, sizes, _own_value(parameter, workload), wanted.degree)
        except TookTooLong:
            raise
        except BadInput:
            continue
        if len(by_batch) == 2:
            break
    if len(by_batch) < 2:
        raise BadInput(f"{spec.workload.job.reference} was refused at the batch sizes {batches[0]} to {batches[-1]}.")
    low, high = sorted(by_batch)
    cells = []
    for size in _common(sizes, by_batch.values()):
        family = TraceFamily(1)
        for batch, own in by_batch.items():
            family.add(batch, own.at(size))
        if family.likeness() < _LIKE:
            raise BadInput(
                f"the tensors of {spec.workload.job.reference} change with {parameter}, so that nothing can be said "
                "between captures; there is no map of it."
            )
        for batch in [value for value in batches if low <= value <= high]:
            found = estimate_rank(spec, family.at(batch))
            captured = batch in by_batch and size in by_batch[batch]
            cells.append(Cell(batch, size, found.device_total, found.p_oom, found.verdict.value, captured))
    return Map(spec.workload.job.reference, parameter, target.gpu.name, target.gpu.usable_memory, tuple(cells))


def _over_gpus(spec: Spec, values: Sequence[int] | None) -> Sweep:
    """What each of them holds, with as many as the layout can be divided over."""
    machines = spec.place.machines
    if machines.nodes > 1 or machines.world_size == 1 or spec.place.rank is not None:
        raise BadInput("the number of GPUs can be looked over where several of one node share a job: 4xa100-40gb.")
    stops = _around(stops_of(_GPUS), machines.world_size) if values is None else sorted(set(values))
    points, refusal = [], None
    simulator = Simulator()
    for count in stops:
        try:
            found = estimate_spec(spec.with_place(device=f"{count}x{machines.gpu}"), simulator)
        except TookTooLong:
            raise
        except BadInput as error:
            refusal = error
        else:
            points.append(_point(count, True, found))
    if not points:
        raise refusal or BadInput("there is no number of GPUs to look at.")
    target = target_of(spec)
    return Sweep(spec.workload.job.reference, _GPUS, target.gpu.name, target.gpu.usable_memory, None, tuple(points))


def _one_rank(spec: Spec) -> Spec:
    """On several GPUs, as the rank that stands for all of them."""
    if spec.place.machines.world_size == 1:
        return spec
    first, *others = kinds_of_ranks(spec)
    if others:
        raise BadInput(
            "the GPUs of a pipeline hold different things, each captured by itself; ask for one value at a time."
        )
    return spec.with_place(rank=first.rank)


def _own_value(parameter: str, workload: Workload) -> int | None:
    if parameter == "batch-size":
        return workload.batch_size
    if parameter == "seq-len":
        return workload.seq_len
    if parameter == "lora-rank":
        return find_parameter(parameter, workload).start
    return max(workload.input_shape[1:]) if workload.input_shape and len(workload.input_shape) > 2 else None


def _family(
    spec: Spec, workload: Callable[[int], Workload], stops: Sequence[int], own: int | None, degree: int
) -> TraceFamily:
    """Captured at both ends of what the job takes, and at its own value (else in the middle)."""
    family = TraceFamily(degree)
    middle = stops[len(stops) // 2] if own is None else own
    refusal: BadInput | None = None
    for tried in ([middle], stops, stops[::-2]):  # limits of models are mostly powers of two: every other stop
        for value in tried[:_TRIES]:
            try:
                trace = _captured(family, value, spec, workload)
            except TookTooLong:
                raise  # that is this machine's, not the job's, answer to the value
            except BadInput as error:
                refusal = error
                continue
            if _are_alike(family, middle, value, trace):
                family.add(value, trace)
                break
            refusal = BadInput(
                f"the tensors of {spec.workload.job.reference} change between {middle} and {value}, so that nothing "
                "can be said of values between them; ask for one value at a time."
            )
    if len(family.captured) < 2:
        raise refusal or BadInput(f"there is only one value to look at: {middle}.")
    if family.likeness() < _LIKE:
        low, high = min(family.captured), max(family.captured)
        raise BadInput(f"the tensors of {spec.workload.job.reference} change between {low} and {high}.")
    return family


def _are_alike(family: TraceFamily, middle: int, value: int, trace: Trace) -> bool:
    """Some jobs do otherwise at an end, with one sample for instance: the range then ends before."""
    if middle not in family:
        return True
    pair = TraceFamily(family.degree)
    pair.add(middle, family.at(middle))
    pair.add(value, trace)
    return pair.likeness() >= _LIKE


def _captured(family: TraceFamily, value: int, spec: Spec, workload: Callable[[int], Workload]) -> Trace:
    return family.at(value) if value in family else capture(spec.with_workload(workload(value)))


def _around(stops: Sequence[int], own: int | None) -> list[int]:
    """Some stops with the job's own value among them."""
    middle = stops[len(stops) // 2] if own is None else own
    ordered = sorted({*stops, middle})
    place = ordered.index(middle)
    start = max(0, min(place - _MAP_STOPS // 2, len(ordered) - _MAP_STOPS))
    return ordered[start : start + _MAP_STOPS]


def _ends(values: Sequence[int]) -> list[int]:
    """The outermost first: lowest, highest, then the next ones inwards."""
    inwards = [value for pair in zip(values, reversed(values), strict=True) for value in pair]
    return list(dict.fromkeys(inwards))


def _common(sizes: Sequence[int], families: Iterable[TraceFamily]) -> list[int]:
    ranges = [(min(family.captured), max(family.captured)) for family in families]
    return [size for size in sizes if all(low <= size <= high for low, high in ranges)]


def _point(value: int, captured: bool, found: Estimate) -> SweepPoint:
    return SweepPoint(
        value=value,
        captured=captured,
        peak_allocated=found.peak_allocated,
        peak_reserved=found.peak_reserved,
        device_total=found.device_total,
        low=found.low,
        high=found.high,
        will_not_exceed=found.will_not_exceed,
        least_capacity=found.least_capacity,
        p_oom=found.p_oom,
        verdict=found.verdict.value,
        breakdown=dict(found.breakdown),
    )
