"""The static estimator: the captured Trace through the simulated allocator, plus what the stack holds beside it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..capture import capture
from ..simulate import (
    BfcSettings,
    DeviceFacts,
    History,
    LiveBlock,
    TempSpace,
    Timeline,
    Workspace,
    WorkspaceTable,
    least_capacity,
    pool_limit,
    record_history,
    simulate,
)
from ..simulate.cudnn import convolution_rules, has_batch_norm, has_convolutions, with_benchmark
from ..trace import Category, Trace
from ..workload import FRAMEWORKS, Workload
from ._calibration import constants_of
from ._estimate import Estimate, LiveTensor, PeakMoment, Verdict
from ._interval import load_interval

if TYPE_CHECKING:
    from ._estimators import Target

__all__ = [
    "ACCEPTED_RISK",
    "Simulation",
    "estimate_by_simulation",
    "estimate_trace",
    "peak_moment",
    "top_tensors",
]

TOP_TENSORS = 10
ACCEPTED_RISK = 0.05
"""The probability of running out of memory up to which a job is said to fit."""


def estimate_by_simulation(workload: Workload, target: Target) -> Estimate:
    trace = capture(workload, target.gpu, target.time_limit)
    return estimate_trace(trace, target)


def estimate_trace(trace: Trace, target: Target) -> Estimate:
    """The Estimate of a job that was captured before."""
    target = target.for_framework(framework_of_trace(trace))
    gpu = target.gpu
    simulation = Simulation(trace, target)
    constants = constants_of(
        gpu, target.stack, simulation.has_convolutions, target.calibration, batch_norm=has_batch_norm(trace)
    )
    context, missed = constants.context, constants.reserved
    room = max(simulation.room(context) - missed, 0)
    limited = simulation.run(room)
    # What does not run is described as it would be on a device without end: that is what it needs.
    timeline = limited if limited.ran else simulation.run()
    reserved = timeline.peak_reserved + missed
    allocated = min(timeline.peak_allocated + constants.allocated, reserved)
    device_total = reserved + context
    needed = simulation.least_capacity() + missed + context
    interval = load_interval(constants.context_is_sure)
    floor = min(device_total, context + timeline.breakdown.get(Category.PARAMETER.value, 0))
    low, high = interval.around(device_total, floor, target.coverage)
    p_oom = interval.chance_above(needed, simulation.available(context))
    breakdown = {
        **{category.value: timeline.breakdown.get(category.value, 0) for category in Category},
        "calibrated": allocated - timeline.peak_allocated,
        "allocator_cache": reserved - allocated,
        "context": context,
    }
    return Estimate(
        peak_allocated=allocated,
        peak_reserved=reserved,
        device_total=device_total,
        low=low,
        high=high,
        coverage=target.coverage,
        will_not_exceed=interval.not_exceeded(device_total, target.coverage),
        p_oom=p_oom,
        verdict=_verdict(limited, p_oom),
        breakdown=breakdown,
        top_tensors=top_tensors(simulation.trace, timeline),
        peak=peak_moment(simulation.trace, timeline),
        phase_peaks=tuple((s.step, s.phase.value, s.allocated, s.reserved) for s in timeline.spans),
        least_capacity=needed,
        device=gpu.name,
        device_usable=gpu.usable_memory,
        unsupported={**trace.unsupported, **{f"workspace of {k}": n for k, n in timeline.kernels_without_rule.items()}},
        assumptions=trace.assumptions,
        workload=trace.workload,
        seconds=0.0,
        provenance={
            "estimator": "simulator",
            "calibration": _calibration_in_words(target),
            "interval": interval.id,
            "environment": target.stack.name,
            "convolution_workspace": simulation.convolutions.source_in_use(),
            "versions": dict(trace.versions),
        },
        peak_by_module=by_module(simulation.trace, timeline),
        history=simulation.history(room if limited.ran else None) if target.keep_history else None,
    )


def framework_of_trace(trace: Trace) -> str:
    """Whose allocator and libraries the job runs with."""
    return next((name for name in FRAMEWORKS if name in trace.versions), "torch")


class Simulation:
    """A Trace with the rules of its target, to be run on devices of any size."""

    def __init__(self, trace: Trace, target: Target) -> None:
        gpu = target.gpu
        facts = DeviceFacts(compute_capability=gpu.compute_capability, torch_version=target.stack.torch_from)
        self.has_convolutions = has_convolutions(trace)
        # TensorFlow and ONNX Runtime time all of a convolution's algorithms when they first meet it.
        benchmark = target.cudnn_benchmark or target.stack.framework in ("tensorflow", "onnx")
        self.convolutions = convolution_rules(gpu, target.stack.cudnn, benchmark=benchmark)
        table = WorkspaceTable(facts).with_rules(self.convolutions)
        self._rules: Workspace = TempSpace(trace, table) if target.stack.framework == "mxnet" else table
        self.trace = with_benchmark(trace) if benchmark else trace
        self._settings = settings = target.settings
        self._endless = settings.endless() if isinstance(settings, BfcSettings) else settings
        self._framework = target.stack.framework
        self._gpu = gpu
        self._device_total = gpu.total_memory

    def room(self, context: int) -> int:
        """Bytes of the card that the allocator can have beside a context of that size, or a share of them."""
        if self._framework == "jax":
            return self._gpu.total_memory
        if self._framework == "tensorflow":
            return pool_limit(self._gpu.usable_memory, context, self._gpu.compute_capability)
        return self._gpu.usable_memory - context

    def available(self, context: int) -> int:
        """Bytes of the card that the job can have in all."""
        usable = self._gpu.usable_memory
        if self._framework == "jax" and isinstance(self._settings, BfcSettings):
            return min(usable, int(self._gpu.total_memory * self._settings.memory_fraction) + context)
        return usable

    def run(self, capacity: int | None = None) -> Timeline:
        return simulate(
            self.trace,
            capacity=capacity,
            settings=self._settings if capacity is not None else self._endless,
            workspace=self._rules,
            device_total=self._device_total,
        )

    def history(self, capacity: int | None = None) -> History:
        """What happens on a device of that size, which must be enough."""
        return record_history(
            self.trace,
            capacity=capacity,
            settings=self._settings,
            workspace=self._rules,
            device_total=self._device_total,
        )

    def least_capacity(self) -> int:
        return least_capacity(
            self.trace, settings=self._endless, workspace=self._rules, device_total=self._device_total
        )


def _verdict(limited: Timeline, p_oom: float) -> Verdict:
    if not limited.ran:
        return Verdict.OOM
    return Verdict.TIGHT if limited.retries or p_oom > ACCEPTED_RISK else Verdict.FITS


def _calibration_in_words(target: Target) -> str:
    if target.calibration is None:
        return "none: the catalogue's context"
    count = len(target.calibration.runs)
    return f"{target.calibration.name}, {count} real {'run' if count == 1 else 'runs'}"


def top_tensors(trace: Trace, timeline: Timeline) -> tuple[LiveTensor, ...]:
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


def by_module(trace: Trace, timeline: Timeline) -> dict[str, int]:
    found: Counter[str] = Counter()
    for block in timeline.live_at_peak:
        found["" if block.allocation is None else trace.allocations[block.allocation].module] += block.size
    return dict(found)


def peak_moment(trace: Trace, timeline: Timeline) -> PeakMoment:
    """The newest block that was alive at the peak is what raised it."""
    peak = timeline.peak
    newest = next((b for b in reversed(timeline.live_at_peak) if b.allocation is not None), None)
    module, source = "", ""
    if newest is not None and newest.allocation is not None:
        made = trace.allocations[newest.allocation]
        module, source = made.module, made.source
    return PeakMoment(peak.phase.value, peak.step, module, source)
