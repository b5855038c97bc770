"""The answer: what the job will hold on the GPU, how sure that is, and why."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..simulate import History

__all__ = ["Estimate", "LiveTensor", "PeakMoment", "Verdict"]


class Verdict(str, Enum):
    FITS = "fits"
    TIGHT = "tight"
    """It should run, but out of memory is more likely than 5 %, or the allocator must release its cache to get by."""
    OOM = "oom"


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
class Estimate:
    """All figures are bytes."""

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
    `allocator_cache` and `context`; sums to `device_total`."""
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
    history: History | None = field(default=None, repr=False, compare=False)
    """What the simulated allocator did, for reports; only if it was asked for, as it is large."""

    @property
    def fits(self) -> bool:
        return self.verdict is not Verdict.OOM

    @property
    def headroom(self) -> int:
        """Usable device memory that stays free; negative where the job does not fit."""
        return self.device_usable - self.device_total

    def _repr_html_(self) -> str:
        """What notebooks show."""
        # By name: this room knows nothing of reports until a notebook asks for one.
        text: str = importlib.import_module("oomcast.report").estimate_fragment(self)
        return text

    def __post_init__(self) -> None:
        total = sum(self.breakdown.values())
        if total != self.device_total:
            raise AssertionError(f"the breakdown sums to {total}, not to the device total of {self.device_total}")
