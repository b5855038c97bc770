"""Whether a job fits at a chosen confidence, by the rule of `oomcast estimate`; and the same by one run of it."""

from __future__ import annotations

from typing import NamedTuple

from ..devices import Gpu, all_gpus
from ..errors import BadInput
from ..estimate import Estimate, Target, Verdict, estimate_trace, load_interval
from ..estimate._calibration import constants_of
from ..estimate._simulator import Simulation, framework_of_trace
from ..simulate.cudnn import has_batch_norm
from ..trace import Trace

__all__ = ["Judge", "Totals", "check_confidence", "fits", "smallest_gpu"]


def check_confidence(confidence: float) -> None:
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
    """On a device without end, what a process holds beside its tensors included."""

    allocated: int
    reserved: int


class Judge:
    """Estimates Traces of one job on one target."""

    def __init__(self, target: Target, confidence: float) -> None:
        self.target = target
        self.confidence = confidence

    def estimate(self, trace: Trace) -> Estimate:
        return estimate_trace(trace, self.target)

    def fits(self, estimate: Estimate) -> bool:
        return fits(estimate, self.confidence)

    def runs(self, trace: Trace) -> bool:
        """`fits`, from one run of the allocator on a device of just the size that the confidence leaves."""
        simulation, context, missed, sure = self._simulation(trace)
        room = min(simulation.room(context), self._limit(sure) - context) - missed
        return simulation.run(max(room, 0)).ran

    def totals(self, trace: Trace) -> Totals:
        simulation, context, missed, _ = self._simulation(trace)
        timeline = simulation.run()
        return Totals(timeline.peak_allocated + missed + context, timeline.peak_reserved + missed + context)

    def limit(self, trace: Trace) -> int:
        """The most that a job may need (`Estimate.least_capacity`) to fit at the confidence."""
        return self._limit(self._simulation(trace)[-1])

    def _limit(self, context_is_sure: bool) -> int:
        interval, usable = load_interval(context_is_sure), self.target.gpu.usable_memory
        low, high = 0, usable + 1
        while high - low > 1:
            middle = (low + high) // 2
            if interval.chance_above(middle, usable) <= 1 - self.confidence + 1e-9:
                low = middle
            else:
                high = middle
        return low

    def _simulation(self, trace: Trace) -> tuple[Simulation, int, int, bool]:
        target = self.target.for_framework(framework_of_trace(trace))
        simulation = Simulation(trace, target)
        constants = constants_of(
            target.gpu,
            target.stack,
            simulation.has_convolutions,
            target.calibration,
            batch_norm=has_batch_norm(trace),
        )
        return simulation, constants.context, constants.reserved, constants.context_is_sure


def smallest_gpu(needed: int, confidence: float) -> Gpu | None:
    """The smallest card of the catalogue on which a job that needs so much fits; kernels are taken to be alike."""
    interval = load_interval(False)
    for gpu in sorted(all_gpus(), key=lambda gpu: (gpu.usable_memory, gpu.name)):
        if interval.chance_above(needed, gpu.usable_memory) <= 1 - confidence + 1e-9:
            return gpu
    return None
