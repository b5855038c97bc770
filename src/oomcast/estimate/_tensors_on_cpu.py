"""The simulated answer for a CPU: the tensors themselves, without what a framework adds to them there."""

from __future__ import annotations

from ..trace import Trace
from ._estimate import Estimate, Verdict
from ._simulator import peak_moment, top_tensors
from ._static_value import CPU, cpu_timeline, live_peak

__all__ = ["tensors_on_cpu"]


def tensors_on_cpu(trace: Trace, memory: int) -> Estimate:
    """What tensors alone hold, on a machine of that memory: real runs tell what comes on top."""
    timeline, live = cpu_timeline(trace), live_peak(trace)
    total = sum(live.values())
    return Estimate(
        peak_allocated=total,
        peak_reserved=total,
        device_total=total,
        low=total,
        high=total,
        coverage=0.0,
        will_not_exceed=total,
        p_oom=0.0,
        verdict=Verdict.FITS,
        breakdown={category.value: size for category, size in live.items()},
        top_tensors=top_tensors(trace, timeline),
        peak=peak_moment(trace, timeline),
        phase_peaks=tuple((s.step, s.phase.value, s.allocated, s.allocated) for s in timeline.spans),
        least_capacity=total,
        device=CPU,
        device_usable=memory,
        unsupported={**trace.unsupported},
        assumptions=trace.assumptions,
        workload=trace.workload,
        seconds=0.0,
        provenance={"versions": dict(trace.versions)},
    )
