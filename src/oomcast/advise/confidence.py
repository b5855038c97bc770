"""Whether a job fits on a GPU with a chosen confidence.

The rule is the one of `oomcast estimate`: the simulated job ends well, and the probability of running out of memory is
at most what the confidence leaves. Searches ask it thousands of times, so there is also a quick form of it, which runs
the simulated allocator once on a device that is smaller by what the confidence demands.
"""

from __future__ import annotations

from typing import NamedTuple

from ..devices import Gpu, all_gpus
from ..errors import BadInput
from ..estimation import Estimate, Simulation, Target, Verdict, bounds_of, estimate_trace, load_interval
from ..trace import Trace

__all__ = ["ConfidentTarget", "Totals", "check_confidence", "fits", "smallest_gpu"]


def check_confidence(confidence: float) -> None:
    """Raises BadInput for a confidence that the measured runs behind the intervals cannot promise."""
    most = min(load_interval(calibrated).curve.levels[-1] for calibrated in (False, True))
    if not 0 < confidence <= most:
        raise BadInput(
            f"the confidence must be above 0 and at most {most:.4g}, not {confidence:g}: "
            "the measured runs behind the interval cannot promise more."
        )


def fits(estimate: Estimate, confidence: float) -> bool:
    """It runs, and the probability that it runs out of memory is at most what the confidence leaves."""
    return estimate.verdict is not Verdict.OOM and estimate.p_oom <= 1 - confidence + 1e-9


class Totals(NamedTuple):
    """What a job holds on a device without end, its CUDA context included. Bytes."""

    allocated: int
    reserved: int
    low: int
    high: int
    """The interval around `reserved`."""


class ConfidentTarget:
    """A target, and the confidence with which a job must fit there."""

    def __init__(self, target: Target, confidence: float) -> None:
        self.target = target
        self.confidence = confidence

    @property
    def gpu(self) -> Gpu:
        return self.target.gpu

    def estimate(self, trace: Trace) -> Estimate:
        return estimate_trace(trace, self.target)

    def fits(self, estimate: Estimate) -> bool:
        return fits(estimate, self.confidence)

    def fits_quickly(self, trace: Trace) -> bool:
        """`fits`, from a run of the allocator on a device of just the size that the confidence leaves."""
        simulation = Simulation(trace, self.target)
        if not simulation.on_the_card.ran:
            return False
        held = simulation.constants.context + simulation.constants.reserved
        room = min(simulation.room, self._limit(simulation) - held)
        return simulation.run(max(room, 0)).ran

    def totals(self, trace: Trace) -> Totals:
        simulation = Simulation(trace, self.target)
        timeline = simulation.unlimited
        held = simulation.constants.context + simulation.constants.reserved
        reserved = timeline.peak_reserved + held
        bounds = bounds_of(simulation, timeline, reserved)
        return Totals(timeline.peak_allocated + held, reserved, bounds.low, bounds.high)

    def limit(self, trace: Trace) -> int:
        """The most that a job may need (`Estimate.least_capacity`) to fit at the confidence."""
        return self._limit(Simulation(trace, self.target))

    def _limit(self, simulation: Simulation) -> int:
        interval = simulation.basis.interval
        usable = self.target.gpu.usable_memory
        low, high = 0, usable + 1
        while high - low > 1:
            middle = (low + high) // 2
            if interval.chance_above(middle, usable) <= 1 - self.confidence + 1e-9:
                low = middle
            else:
                high = middle
        return low


def smallest_gpu(estimate: Estimate, confidence: float) -> Gpu | None:
    """The smallest card of the catalogue on which such a job fits; kernels are taken to be alike."""
    basis, needed = estimate.interval_basis, estimate.least_capacity
    interval = load_interval(False) if basis is None else basis.interval
    for gpu in sorted(all_gpus(), key=lambda gpu: (gpu.usable_memory, gpu.name)):
        if interval.chance_above(needed, gpu.usable_memory) <= 1 - confidence + 1e-9:
            return gpu
    return None
