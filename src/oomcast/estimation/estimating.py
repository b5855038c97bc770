"""The Estimate of a job whose Trace is known: its figures, and what is said beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..devices import NcclFigure, context_figure
from ..simulate import LiveBlock, SpanPeak, Timeline
from ..simulate.cudnn import Source
from ..trace import Category, Phase, Trace
from ..units import format_bytes
from .answer import Estimate, LiveTensor, PeakMoment, Verdict, agreeing_chance
from .calibration import Constants
from .simulation import NO_RANKS, ORDERS_TO_TRY, Simulation, bounds_of
from .target import Target

__all__ = ["ACCEPTED_RISK", "ESTIMATOR", "estimate_trace", "peak_moment", "top_tensors"]

ESTIMATOR = "simulator"
"""The name of the estimator that answers so."""
TOP_TENSORS = 10
ACCEPTED_RISK = 0.05
"""The probability of running out of memory up to which a job is said to fit."""
_STEPS_TO_JUDGE = 2
"""Optimizer steps of a script: the first makes the optimizer's state, so the second is the first that has it all."""


def estimate_trace(
    trace: Trace,
    target: Target,
    *,
    keep_history: bool = False,
    convolutions: Source = "auto",
    communication: NcclFigure = NO_RANKS,
) -> Estimate:
    """The Estimate of a job that was captured before; for `convolutions` and `communication` see `Simulation`."""
    simulation = Simulation(trace, target, convolutions, communication)
    target, constants = simulation.target, simulation.constants
    limited = simulation.on_the_card
    # What does not run is described as it would be on a device without end: that is what it needs.
    timeline = limited if limited.ran else simulation.unlimited
    reserved = simulation.reserved(timeline)
    allocated = simulation.allocated(timeline)
    device_total = reserved + constants.context + simulation.communication
    needed = simulation.needed()
    bounds, interval = bounds_of(simulation, timeline, device_total), simulation.basis.interval
    p_oom = agreeing_chance(interval.chance_above(needed + bounds.above, simulation.available), limited.ran)
    calibrated_by = _calibration_in_words(target)
    others = tuple(found + constants.reserved for found in simulation.other_orders)
    in_orders = (min(reserved, *others), max(reserved, *others)) if others else None
    breakdown = {
        **{category.value: timeline.breakdown.get(category.value, 0) for category in Category},
        "calibrated": allocated - timeline.peak_allocated,
        "allocator_cache": reserved - allocated,
        "context": constants.context,
        **({"communication": simulation.communication} if simulation.communication else {}),
    }
    return Estimate(
        peak_allocated=allocated,
        peak_reserved=reserved,
        device_total=device_total,
        low=bounds.low,
        high=bounds.high,
        coverage=target.coverage,
        will_not_exceed=bounds.not_exceeded,
        p_oom=p_oom,
        verdict=_verdict(limited, p_oom, trace),
        breakdown=breakdown,
        top_tensors=top_tensors(simulation.trace, timeline),
        peak=peak_moment(simulation.trace, timeline),
        phase_peaks=_phase_peaks(timeline.spans),
        least_capacity=needed,
        device=target.gpu.name,
        device_usable=target.gpu.usable_memory,
        unsupported={**trace.unsupported, **{f"workspace of {k}": n for k, n in timeline.kernels_without_rule.items()}},
        assumptions=(
            *trace.assumptions,
            *_about_determinism(simulation),
            *_about_orders(in_orders),
            *_about_maker(target),
            *_about_calibration(target, constants),
        ),
        workload=trace.workload,
        seconds=0.0,
        provenance={
            "estimator": ESTIMATOR,
            "calibration": calibrated_by or "none: the catalogue's context",
            "interval": interval.id,
            "environment": target.stack.environment,
            "convolution_workspace": simulation.convolutions.source_in_use(),
            "versions": dict(trace.versions),
        },
        peak_by_module=by_module(simulation.trace, timeline),
        interval_basis=simulation.basis,
        calibrated_by=calibrated_by,
        reserved_in_orders=in_orders,
        script=trace.script,
        history=simulation.history(simulation.room if limited.ran else None) if keep_history else None,
    )


def _phase_peaks(spans: Sequence[SpanPeak]) -> tuple[tuple[int, str, int, int], ...]:
    """Step, phase and the highest bytes. Compiling interrupts a phase with every kernel that is timed: what it takes
    meanwhile is one entry, after that of the phase, which goes on."""
    highest: list[tuple[int, Phase, int, int]] = []
    interrupted = 0
    for span in spans:
        goes_on = [n for n in range(interrupted, len(highest)) if highest[n][:2] == (span.step, span.phase)]
        if goes_on:
            _, _, allocated, reserved = highest[goes_on[0]]
            allocated, reserved = max(allocated, span.allocated), max(reserved, span.reserved)
            highest[goes_on[0]] = (span.step, span.phase, allocated, reserved)
            continue
        if span.phase is not Phase.COMPILING:
            interrupted = len(highest)
        highest.append((span.step, span.phase, span.allocated, span.reserved))
    return tuple((step, phase.value, allocated, reserved) for step, phase, allocated, reserved in highest)


def _about_determinism(simulation: Simulation) -> tuple[str, ...]:
    if not (simulation.trace.settings.cudnn_deterministic and simulation.has_convolutions):
        return ()
    if simulation.convolutions.knows_deterministic_kernels:
        return ("the job wants deterministic algorithms: cuDNN's kernels that are none are left out",)
    return (
        "the job wants deterministic algorithms, and the workspaces of convolutions are those of all of cuDNN's "
        "kernels: which of them are none is known where cuDNN is installed (pip install 'oomcast[cudnn]')",
    )


def _about_orders(between: tuple[int, int] | None) -> tuple[str, ...]:
    if between is None:
        return ()
    return (
        f"batches of different lengths come in the order given; in it and {ORDERS_TO_TRY} others the allocator "
        f"reserves {format_bytes(between[0])} to {format_bytes(between[1])}, and the interval holds them all",
    )


def _verdict(limited: Timeline, p_oom: float, trace: Trace) -> Verdict:
    if not limited.ran:
        return Verdict.OOM
    if trace.script is not None and trace.script.optimizer_steps < _STEPS_TO_JUDGE and not trace.only_infers:
        return Verdict.UNKNOWN
    return Verdict.TIGHT if limited.retries or p_oom > ACCEPTED_RISK else Verdict.FITS


def _calibration_in_words(target: Target) -> str | None:
    if target.calibration is None:
        return None
    count = len(target.calibration.runs)
    return f"{target.calibration.name}, {count} real {'run' if count == 1 else 'runs'}"


def _about_maker(target: Target) -> tuple[str, ...]:
    maker = target.gpu.maker
    if maker is None:
        return ()
    figure = context_figure(target.gpu, target.stack)
    context = f"{format_bytes(figure.typical)} ({format_bytes(figure.low)} to {format_bytes(figure.high)})"
    return (
        f"no run on {target.gpu.driver_name} stands behind this figure: {maker.unknown}; the interval is "
        f"{maker.spread:g} times as wide as that of measured cards",
        f"the context, {context}: {maker.context_source}",
    )


def _about_calibration(target: Target, constants: Constants) -> tuple[str, ...]:
    if target.calibration is None or constants.contradiction is None:
        return ()
    least, most = (format_bytes(context) for context in constants.contradiction)
    name = target.calibration.name
    return (
        f"the real runs behind the calibration contradict each other: they tell a context of {least} to {most}, and "
        f"the bounds hold both (oomcast calibrate --show {name} lists the runs, --undo {name} takes back the newest)",
    )


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
