"""What real runs told about an environment: the artifact that `oomcast calibrate` keeps, and the constants it gives.

Two things can be learnt from a run, and each has its own reading:

- The context, what the process holds outside of torch's allocator, needs the device's own figure (nvidia-smi, NVML):
  the measured total less what the allocator reserved, as measured in a run of the same job or else as simulated. A
  simulated figure brings its own error along, which grows with the job, so that small jobs tell the context best.
- What the simulated allocator misses, handles and workspaces of libraries that torch allocates once and keeps, needs
  torch's own counters: measured less simulated. It is a constant and never negative: a simulation that says too much
  is wrong about that job, and no constant of an environment stands for that.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..devices import Gpu, Stack, context_bytes
from ..units import MiB

__all__ = ["Calibration", "Constants", "MeasuredRun", "constants_of"]

_READING_ERROR = 20 * MiB
"""Of nvidia-smi's figure: when it was read, what else was loaded by then."""
_SIMULATION_ERROR = 0.025
"""Of the simulated reserved bytes: half of the middle two thirds of the measured runs' errors, rounded up."""
_SURE = 100 * MiB


@dataclass(frozen=True)
class MeasuredRun:
    """One real run beside its simulation. Bytes; None where a figure was not measured."""

    source: str
    """`nvidia-smi`, `snapshot`, `memory-stats` or `run`."""
    device_total: int | None
    reserved: int | None
    allocated: int | None
    simulated_reserved: int
    simulated_allocated: int
    convolutions: bool
    """Whether the job has any: where loading cuDNN means all of it, its kernels are part of the context only then."""
    workload: Mapping[str, Any] = field(default_factory=dict)
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Constants:
    """What one environment adds to the simulated allocator on one GPU. Bytes."""

    context: int
    reserved: int = 0
    allocated: int = 0
    context_is_measured: bool = False
    context_error: int = 0
    """How far off a measured context may be, because of how it was measured."""

    @property
    def context_is_sure(self) -> bool:
        """Whether the narrower interval holds, that of measured runs whose context was known."""
        return self.context_is_measured and self.context_error <= _SURE


@dataclass(frozen=True)
class Calibration:
    """All real runs that are known of one GPU under one environment; they combine by medians."""

    gpu: str
    environment: str
    runs: tuple[MeasuredRun, ...] = ()

    @property
    def name(self) -> str:
        return calibration_name(self.gpu, self.environment)

    def with_run(self, run: MeasuredRun) -> Calibration:
        """One more; the same run told again counts once."""
        same = replace(run, date="")
        kept = tuple(one for one in self.runs if replace(one, date="") != same)
        return replace(self, runs=(*kept, run))

    def constants(self, gpu: Gpu, stack: Stack, convolutions: bool) -> Constants:
        """What follows from the runs; the catalogue's context where no run tells it."""
        reserved = _constant(run.reserved - run.simulated_reserved for run in self.runs if run.reserved is not None)
        allocated = _constant(run.allocated - run.simulated_allocated for run in self.runs if run.allocated is not None)
        kernels = (stack.cudnn_kernels_mib + stack.cudnn_batch_norm_mib) * MiB
        same_job = {_job(run): run.reserved for run in self.runs if run.reserved is not None}
        contexts = []
        for run in self.runs:
            if run.device_total is None:
                continue
            held = same_job.get(_job(run))
            error = _READING_ERROR if held is not None else _READING_ERROR + _SIMULATION_ERROR * run.simulated_reserved
            # A total without torch's own figure holds what the simulated allocator misses as well.
            beside = run.device_total - (run.simulated_reserved + reserved if held is None else held)
            contexts.append((beside + (convolutions - run.convolutions) * kernels, error))
        if not contexts:
            return Constants(context_bytes(gpu, stack, convolutions=convolutions), reserved, allocated)
        return Constants(
            context=max(_weighted_median([(context, 1 / error) for context, error in contexts]), 0),
            reserved=reserved,
            allocated=allocated,
            context_is_measured=True,
            context_error=round(min(error for _, error in contexts)),
        )


def calibration_name(gpu: str, environment: str) -> str:
    return f"{gpu}@{environment}"


def constants_of(
    gpu: Gpu, stack: Stack, convolutions: bool, calibration: Calibration | None, batch_norm: bool = True
) -> Constants:
    """From the calibration where there is one, else from the catalogue."""
    if calibration is None:
        return Constants(context_bytes(gpu, stack, convolutions=convolutions, batch_norm=batch_norm))
    return calibration.constants(gpu, stack, convolutions)


def _constant(differences: Iterable[int]) -> int:
    listed = list(differences)
    return max(round(statistics.median(listed)), 0) if listed else 0


def _weighted_median(weighted: Sequence[tuple[int, float]]) -> int:
    """With equal weights the usual median, also that of two."""
    ordered = sorted(weighted)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for index, (value, weight) in enumerate(ordered):
        reached += weight
        if reached > half * (1 + 1e-9):
            return value
        if reached >= half * (1 - 1e-9):
            return round((value + ordered[index + 1][0]) / 2)
    raise AssertionError("no values")


def _job(run: MeasuredRun) -> str:
    """Equal for runs of the same job with the same options."""
    return json.dumps(run.workload, sort_keys=True, default=str)
