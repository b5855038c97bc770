"""The answer: what the job will hold on the GPU, how sure that is, and why."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from ..units import format_bytes
from .doubt import Doubt
from .interval import Interval, load_interval

if TYPE_CHECKING:
    from ..simulate import History
    from ..trace import ScriptRun

__all__ = ["Estimate", "IntervalBasis", "LiveTensor", "PeakMoment", "RankEstimate", "Verdict", "agreeing_chance"]


class Verdict(str, Enum):
    FITS = "fits"
    TIGHT = "tight"
    """It should run, but out of memory is more likely than 5 %, or the allocator must release its cache to get by."""
    OOM = "oom"
    UNKNOWN = "unknown"
    """What was seen of a script fits, but that was less than two of its training steps."""


def agreeing_chance(p_oom: float, runs: bool) -> float:
    """The probability of running out of memory, beside a verdict that the job runs or does not: none is called likely
    while the other is stated. The two come from different sources, and near the limit they may differ."""
    return min(p_oom, 0.5) if runs else max(p_oom, 0.5)


@dataclass(frozen=True)
class LiveTensor:
    """A block in use at the peak."""

    nbytes: int
    category: str
    operator: str
    module: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    phase: str
    step: int


@dataclass(frozen=True)
class PeakMoment:
    """Where in the job the most is allocated."""

    phase: str
    step: int
    module: str
    source: str


@dataclass(frozen=True)
class IntervalBasis:
    """The shipped interval that an estimate's bounds come from: the errors of real runs."""

    runs: int
    """How many real runs stand behind it."""
    context_is_sure: bool
    """Whether it is the interval for a CUDA context that a calibration measured closely (`load_interval`)."""
    spread: float = 1.0
    """How many times as wide as for the job in the middle of those runs (`Interval.for_job`)."""
    other_cards: float = 1.0
    """How many times wider than that it was made, since the runs are of other makers' cards."""
    doubt: Doubt | None = None
    """What of this job drives its error; None for allocators of which no run was measured."""
    unasked_compiler: float = 1.0
    """How many times wider it was made, since the compiler that plans the job's memory was not asked."""

    @property
    def of_the_job(self) -> float:
        """How many times as wide as for the job in the middle, on whichever card it runs."""
        return self.spread * self.unasked_compiler

    @property
    def interval(self) -> Interval:
        return load_interval(self.context_is_sure).widened(self.of_the_job * self.other_cards)


@dataclass(frozen=True)
class RankEstimate:
    """On several GPUs: what one rank holds, and how many others hold the same."""

    rank: int
    """The one that was followed."""
    count: int
    """How many ranks are taken to be like it, itself included."""
    role: str
    """What it does, in words: `every rank`, `stage 1 of 4`."""
    peak_allocated: int
    peak_reserved: int
    device_total: int
    will_not_exceed: int
    p_oom: float
    verdict: Verdict


@dataclass(frozen=True, repr=False)
class Estimate:
    """All figures are bytes. JSON (`oomcast estimate --json`) has the same names."""

    peak_allocated: int
    """Held by tensors and workspaces: `torch.cuda.max_memory_allocated()`."""
    peak_reserved: int
    """Held by the caching allocator: `torch.cuda.max_memory_reserved()`."""
    device_total: int
    """What nvidia-smi would show for the process: reserved, and the CUDA context."""
    low: int
    high: int
    coverage: float
    """The share of jobs whose true `device_total` lies between `low` and `high`."""
    will_not_exceed: int
    """The one-sided bound: the true `device_total` stays at or below it in a `coverage` share of jobs."""
    p_oom: float
    """The probability, from 0 to 1, that the job needs at least (`least_capacity`) more than the device has."""
    verdict: Verdict
    breakdown: Mapping[str, int]
    """By category at the peak, then `calibrated` (what a calibration adds to the simulated allocator),
    `allocator_cache`, `context` and, on several GPUs, `communication` (NCCL's buffers); sums to `device_total`."""
    top_tensors: tuple[LiveTensor, ...]
    peak: PeakMoment
    phase_peaks: tuple[tuple[int, str, int, int], ...]
    """Step, phase, highest allocated, highest reserved; in order."""
    least_capacity: int
    """The least usable device memory, context included, on which the job still runs."""
    device: str
    device_usable: int
    unsupported: Mapping[str, int]
    """What was met and not modelled, with how often; never silently zero."""
    assumptions: tuple[str, ...]
    workload: Mapping[str, Any]
    seconds: float
    provenance: Mapping[str, Any]
    """Estimator, calibration, environment and versions."""
    peak_by_module: Mapping[str, int] = field(default_factory=dict)
    """Bytes at the peak by the dotted path of their module, "" outside of any; sums to `peak_allocated` less
    `calibrated`. Empty where an estimator follows no tensors."""
    interval_basis: IntervalBasis | None = None
    """None where the estimator has bounds of its own; what they rest on is in its provenance."""
    calibrated_by: str | None = None
    """The real runs whose figures were used, in words; None: the catalogue's context."""
    reserved_in_orders: tuple[int, int] | None = None
    """For batches of different lengths: the least and the most that the allocator reserves in the orders tried, the
    given one among them. None where there is only one order."""
    ranks: tuple[RankEstimate, ...] = ()
    """On several GPUs, one for each kind of rank; the Estimate itself is the worst one's. Empty on one GPU."""
    host_memory: int | None = None
    """Bytes that all ranks of a node together put off to their host's memory, beside what their processes take
    themselves; None where nothing is put off, or it is not followed."""
    script: ScriptRun | None = None
    """For a script: how far it was followed, and why no further."""
    history: History | None = field(default=None, compare=False)
    """What the simulated allocator did, for reports; only if it was asked for, as it is large."""

    @property
    def fits(self) -> bool:
        return self.verdict in (Verdict.FITS, Verdict.TIGHT)

    @property
    def highest_by_phase(self) -> dict[str, tuple[int, int]]:
        """Phase → the highest allocated and reserved bytes in it, over all steps; in the order of their coming."""
        highest: dict[str, tuple[int, int]] = {}
        for _, phase, allocated, reserved in self.phase_peaks:
            before = highest.get(phase, (0, 0))
            highest[phase] = max(before[0], allocated), max(before[1], reserved)
        return highest

    @property
    def headroom(self) -> int:
        """Usable device memory that stays free; negative where the job does not fit."""
        return self.device_usable - self.device_total

    def __repr__(self) -> str:
        """One line with what decides: shells and logs show it."""
        job = self.workload.get("job", "a job")
        return (
            f"<Estimate {self.verdict.name} {job} on {self.device}: {format_bytes(self.device_total)} of "
            f"{format_bytes(self.device_usable)} usable ({100 * self.coverage:.4g}% interval {format_bytes(self.low)} "
            f"to {format_bytes(self.high)}), P(OOM) {self.p_oom:.1%}>"
        )

    def _repr_html_(self) -> str:
        """What notebooks show."""
        # By name: this room knows nothing of reports until a notebook asks for one.
        text: str = importlib.import_module("oomcast.report").estimate_fragment(self)
        return text

    def __post_init__(self) -> None:
        total = sum(self.breakdown.values())
        if total != self.device_total:
            raise AssertionError(f"the breakdown sums to {total}, not to the device total of {self.device_total}")
