"""The static estimator: the captured Trace through the simulated allocator, plus what the stack holds beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..capture import capture
from ..devices import context_bytes
from ..simulate import DeviceFacts, LiveBlock, Timeline, WorkspaceTable, least_capacity, simulate
from ..simulate.cudnn import convolution_rules, has_convolutions, with_benchmark
from ..trace import Category, Trace
from ..workload import Workload
from ._estimate import Estimate, LiveTensor, PeakMoment, Verdict
from ._interval import load_interval

if TYPE_CHECKING:
    from ._estimators import Target

__all__ = ["estimate_by_simulation", "estimate_trace"]

TOP_TENSORS = 10


def estimate_by_simulation(workload: Workload, target: Target) -> Estimate:
    trace = capture(workload, target.gpu, target.time_limit)
    return estimate_trace(trace, target)


def estimate_trace(trace: Trace, target: Target) -> Estimate:
    """The Estimate of a job that was captured before."""
    gpu = target.gpu
    context = context_bytes(gpu, target.stack, convolutions=has_convolutions(trace))
    facts = DeviceFacts(compute_capability=gpu.compute_capability, torch_version=target.stack.torch_from)
    convolutions = convolution_rules(gpu, target.stack.cudnn, benchmark=target.cudnn_benchmark)
    rules = WorkspaceTable(facts).with_rules(convolutions)
    if target.cudnn_benchmark:
        trace = with_benchmark(trace)
    capacity = gpu.usable_memory - context
    limited = simulate(
        trace, capacity=max(capacity, 0), settings=target.settings, workspace=rules, device_total=gpu.total_memory
    )
    # What does not run is described as it would be on a device without end: that is what it needs.
    timeline = (
        limited
        if limited.ran
        else simulate(trace, settings=target.settings, workspace=rules, device_total=gpu.total_memory)
    )
    device_total = timeline.peak_reserved + context
    interval = load_interval()
    floor = min(device_total, context + timeline.breakdown.get(Category.PARAMETER.value, 0))
    low, high = interval.around(device_total, floor)
    breakdown = {
        **{category.value: timeline.breakdown.get(category.value, 0) for category in Category},
        "allocator_cache": timeline.peak_reserved - timeline.peak_allocated,
        "context": context,
    }
    if not limited.ran:
        verdict = Verdict.OOM
    elif high > gpu.usable_memory or limited.retries:
        verdict = Verdict.TIGHT
    else:
        verdict = Verdict.FITS
    return Estimate(
        peak_allocated=timeline.peak_allocated,
        peak_reserved=timeline.peak_reserved,
        device_total=device_total,
        low=low,
        high=high,
        coverage=interval.coverage,
        verdict=verdict,
        breakdown=breakdown,
        top_tensors=_top_tensors(trace, timeline),
        peak=_peak_moment(trace, timeline),
        phase_peaks=tuple((s.step, s.phase.value, s.allocated, s.reserved) for s in timeline.spans),
        least_capacity=context
        + least_capacity(trace, settings=target.settings, workspace=rules, device_total=gpu.total_memory),
        device=gpu.name,
        device_usable=gpu.usable_memory,
        unsupported={**trace.unsupported, **{f"workspace of {k}": n for k, n in timeline.kernels_without_rule.items()}},
        assumptions=trace.assumptions,
        workload=trace.workload,
        seconds=0.0,
        provenance={
            "estimator": "simulator",
            "calibration": interval.id,
            "environment": target.stack.name,
            "convolution_workspace": convolutions.source_in_use(),
            "versions": dict(trace.versions),
        },
    )


def _top_tensors(trace: Trace, timeline: Timeline) -> tuple[LiveTensor, ...]:
    largest = sorted(timeline.live_at_peak, key=lambda block: -block.size)[:TOP_TENSORS]
    return tuple(_live_tensor(trace, block) for block in largest)


def _live_tensor(trace: Trace, block: LiveBlock) -> LiveTensor:
    if block.allocation is None:
        return LiveTensor(block.size, block.category.value, block.name, "", "", (), "", "", -1)
    made = trace.allocations[block.allocation]
    return LiveTensor(
        nbytes=block.size,
        category=made.category.value,
        operator=made.operator,
        module=made.module,
        source=made.source,
        shape=made.shape,
        dtype=made.dtype,
        phase=made.phase.value,
        step=made.step,
    )


def _peak_moment(trace: Trace, timeline: Timeline) -> PeakMoment:
    """The newest block that was alive at the peak is what raised it."""
    peak = timeline.peak
    newest = next((b for b in reversed(timeline.live_at_peak) if b.allocation is not None), None)
    module, source = "", ""
    if newest is not None and newest.allocation is not None:
        made = trace.allocations[newest.allocation]
        module, source = made.module, made.source
    return PeakMoment(peak.phase.value, peak.step, module, source)
