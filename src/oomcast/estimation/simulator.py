"""The static estimator: the captured Trace through the simulated allocator, plus what the stack holds beside it."""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

from ..capture import capture, expecting, guess_framework
from ..devices import NcclFigure, context_bytes, context_figure
from ..errors import BadInput, OomcastError
from ..simulate import (
    AllocatorSettings,
    BfcSettings,
    DeviceFacts,
    History,
    LiveBlock,
    Program,
    SpanPeak,
    StoragePoolSettings,
    TempSpace,
    Timeline,
    Workspace,
    WorkspaceTable,
    compile_trace,
    least_capacity_of,
    pool_limit,
    record_history,
    reserved_in_other_orders,
    run_program,
)
from ..simulate.cudnn import Source, convolution_rules, has_batch_norm, has_convolutions, with_benchmark
from ..spec import FRAMEWORKS, Spec
from ..trace import Category, Phase, ScriptRun, Trace, verify
from ..units import format_bytes
from .answer import Estimate, IntervalBasis, LiveTensor, PeakMoment, RankEstimate, Verdict, agreeing_chance
from .calibration import Constants
from .estimators import Estimator
from .interval import Interval, load_interval
from .ranks import KindOfRank, communication_of, kinds_of_ranks
from .target import Target

__all__ = [
    "ACCEPTED_RISK",
    "Bounds",
    "Simulation",
    "Simulator",
    "bounds_of",
    "constants_of",
    "estimate_rank",
    "estimate_trace",
    "peak_moment",
    "target_of",
    "top_tensors",
]

TOP_TENSORS = 10
ACCEPTED_RISK = 0.05
"""The probability of running out of memory up to which a job is said to fit."""
_ORDERS_TO_TRY = 8
_NO_RANKS = NcclFigure()
_STEPS_TO_JUDGE = 2
"""Optimizer steps of a script: the first makes the optimizer's state, so the second is the first that has it all."""


def target_of(spec: Spec) -> Target:
    """Where the job runs; its framework, as far as that is known before it runs, decides which software it meets."""
    return Target.of(spec.place, guess_framework(spec.workload))


class Simulator(Estimator):
    """What the job itself allocates, followed on a virtual GPU and through the simulated allocator."""

    name = "simulator"

    def estimate(self, spec: Spec, options: Any) -> Estimate:
        target = target_of(spec)  # before anything is captured: what is wrong with the place is told at once
        if spec.place.machines.world_size > 1:
            return _worst_of_the_ranks(spec)
        return estimate_trace(capture(spec), target, keep_history=spec.effort.keep_history)

    def estimate_trace(self, trace: Trace, target: Target, options: Any = None) -> Estimate:
        return estimate_trace(trace, target)


def estimate_rank(spec: Spec, trace: Trace) -> Estimate:
    """The Estimate of one rank of several GPUs, whose Trace is known: what its groups of ranks hold comes on top."""
    target = target_of(spec)
    communication, told = communication_of(spec, trace, target)
    trace = dataclasses.replace(trace, assumptions=(*trace.assumptions, *told))
    answer = estimate_trace(trace, target, keep_history=spec.effort.keep_history, communication=communication)
    machines = spec.place.machines
    return dataclasses.replace(
        answer, host_memory=trace.on_host * min(machines.gpus_per_node, machines.world_size) or None
    )


def _worst_of_the_ranks(spec: Spec) -> Estimate:
    """Each kind of rank is captured once; the answer is the one that needs most, with the table of all."""
    if spec.script is not None:
        answers, told = _ranks_of_a_script(spec)
    else:
        kinds = kinds_of_ranks(spec)
        with expecting([_as_rank(spec, kind) for kind in kinds] if len(kinds) > 1 else ()):
            answers, told = [(kind, _of_kind(spec, kind)) for kind in kinds], ()
    _, worst = max(answers, key=lambda pair: pair[1].device_total)
    ranks = tuple(
        RankEstimate(
            rank=kind.rank,
            count=kind.count,
            role=kind.role,
            peak_allocated=answer.peak_allocated,
            peak_reserved=answer.peak_reserved,
            device_total=answer.device_total,
            will_not_exceed=answer.will_not_exceed,
            p_oom=answer.p_oom,
            verdict=answer.verdict,
        )
        for kind, answer in answers
    )
    return dataclasses.replace(worst, ranks=ranks, assumptions=(*worst.assumptions, *told))


def _of_kind(spec: Spec, kind: KindOfRank) -> Estimate:
    return estimate_rank(spec, capture(_as_rank(spec, kind)))


def _as_rank(spec: Spec, kind: KindOfRank) -> Spec:
    return spec.with_place(rank=kind.rank)


def _ranks_of_a_script(spec: Spec) -> tuple[list[tuple[KindOfRank, Estimate]], tuple[str, ...]]:
    """Rank 0 and, where it can be followed by itself, the last one; with what is to be told of it."""
    first, *others = kinds_of_ranks(spec)
    answers = [(first, _of_kind(spec, first))]
    _check_own_gpu(spec, first, answers[0][1].script)
    for kind in others:
        try:
            answer = _of_kind(spec, kind)
        except OomcastError as error:
            reason = str(error).rstrip(".")
        else:
            _check_own_gpu(spec, kind, answer.script)
            if answer.verdict is not Verdict.UNKNOWN:
                answers.append((kind, answer))
                continue
            reason = "" if answer.script is None else answer.script.reason
        like_first = dataclasses.replace(first, count=first.count + kind.count)
        return [(like_first, answers[0][1])], (
            f"rank {kind.rank} could not be followed by itself, so that all ranks are taken to hold what rank 0 does: "
            f"{reason}",
        )
    return answers, ()


def _check_own_gpu(spec: Spec, kind: KindOfRank, script: ScriptRun | None) -> None:
    """Processes that choose no GPU all work on the first one, where their memory adds up."""
    own = kind.rank % spec.place.machines.gpus_per_node
    if script is not None and own > 0 and script.gpus == (0,):
        raise BadInput(
            f"{spec.workload.job.reference} works on cuda:0 as rank {kind.rank}, too: all processes of a node would "
            "share the first GPU; let each choose its own: torch.cuda.set_device(int(os.environ['LOCAL_RANK']))."
        )


class Bounds(NamedTuple):
    """What a total may really be. Bytes."""

    low: int
    high: int
    not_exceeded: int
    above: int
    """By how much the context and NCCL's buffers may be larger than they were taken to be."""
    interval: Interval


def bounds_of(simulation: Simulation, timeline: Timeline, device_total: int) -> Bounds:
    """Around the total of one run of the simulation."""
    target, constants = simulation.target, simulation.constants
    interval, maker = load_interval(constants.context_is_sure), target.gpu.maker
    # Real runs that contradict each other: whichever is right, the bounds must hold it.
    above, below = constants.context_at_most - constants.context, constants.context - constants.context_at_least
    if maker is not None:
        interval = interval.widened(maker.spread)
        figure = context_figure(target.gpu, target.stack)
        above, below = above + figure.high - figure.typical, below + figure.typical - figure.low
    above += simulation.nccl.high - simulation.nccl.typical
    below += simulation.nccl.typical - simulation.nccl.low
    held = constants.context + simulation.communication + timeline.breakdown.get(Category.PARAMETER.value, 0)
    floor = min(device_total, held)
    low, high = interval.around(device_total, floor, target.coverage)
    not_exceeded = interval.not_exceeded(device_total, target.coverage)
    if simulation.pool_doubles:
        least, most, most_one_sided = interval.ratios(target.coverage)
        low = min(low, max(simulation.total_if(least), floor))
        high = max(high, simulation.total_if(most))
        not_exceeded = max(not_exceeded, simulation.total_if(most_one_sided))
    if simulation.other_orders:
        # No order of the batches can have the allocator reserve more than the card has.
        most_of_all = max(device_total, simulation.available)
        beside = simulation.constants.reserved + simulation.constants.context + simulation.communication
        totals = [min(reserved + beside, most_of_all) for reserved in simulation.other_orders]
        low = min(low, interval.around(min(totals), floor, target.coverage)[0])
        high = max(high, interval.around(max(totals), floor, target.coverage)[1])
        not_exceeded = max(not_exceeded, interval.not_exceeded(max(totals), target.coverage))
    return Bounds(max(low - below, 0), high + above, not_exceeded + above, above, interval)


def estimate_trace(
    trace: Trace,
    target: Target,
    *,
    keep_history: bool = False,
    convolutions: Source = "auto",
    communication: NcclFigure = _NO_RANKS,
) -> Estimate:
    """The Estimate of a job that was captured before; for `convolutions` and `communication` see `Simulation`."""
    simulation = Simulation(trace, target, convolutions, communication)
    target, constants = simulation.target, simulation.constants
    limited = simulation.run(simulation.room)
    # What does not run is described as it would be on a device without end: that is what it needs.
    timeline = limited if limited.ran else simulation.run()
    reserved = simulation.reserved(timeline)
    allocated = simulation.allocated(timeline)
    device_total = reserved + constants.context + simulation.communication
    needed = simulation.needed()
    bounds, maker = bounds_of(simulation, timeline, device_total), target.gpu.maker
    interval = bounds.interval
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
        verdict=_verdict(limited, p_oom, trace.script),
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
            *_about_orders(in_orders),
            *_about_maker(target),
            *_about_calibration(target, constants),
        ),
        workload=trace.workload,
        seconds=0.0,
        provenance={
            "estimator": Simulator.name,
            "calibration": calibrated_by or "none: the catalogue's context",
            "interval": interval.id,
            "environment": target.stack.name,
            "convolution_workspace": simulation.convolutions.source_in_use(),
            "versions": dict(trace.versions),
        },
        peak_by_module=by_module(simulation.trace, timeline),
        interval_basis=IntervalBasis(interval.runs, constants.context_is_sure, 1.0 if maker is None else maker.spread),
        calibrated_by=calibrated_by,
        reserved_in_orders=in_orders,
        script=trace.script,
        history=simulation.history(simulation.room if limited.ran else None) if keep_history else None,
    )


def framework_of_trace(trace: Trace) -> str:
    """Whose allocator and libraries the job runs with."""
    return next((name for name in FRAMEWORKS if name in trace.versions), "torch")


def constants_of(target: Target, trace: Trace) -> Constants:
    """What the job's process holds on the target beside what its tensors take: calibrated, else from the catalogue."""
    used = {"convolutions": has_convolutions(trace), "batch_norm": has_batch_norm(trace)}
    if target.calibration is None:
        return Constants(context_bytes(target.gpu, target.stack, **used))
    return target.calibration.constants(target.gpu, target.stack, **used)


class Simulation:
    """A Trace with the rules of its target, to be run on devices of any size.

    The one place that knows what a process holds beside its tensors, what the allocator may take, and where it ends.
    `convolutions` says who answers for their workspaces, as in `convolution_rules`: to see what an answer is worth.
    `communication` is what NCCL holds beside the allocator, on several GPUs.
    """

    def __init__(
        self, trace: Trace, target: Target, convolutions: Source = "auto", communication: NcclFigure = _NO_RANKS
    ) -> None:
        self.nccl = communication
        self.communication = communication.typical
        self.target = target = target.for_framework(framework_of_trace(trace)).as_set_by(trace.settings)
        gpu = target.gpu
        facts = DeviceFacts(
            compute_capability=gpu.compute_capability,
            torch_version=target.stack.version,
            cublas_workspace=trace.settings.cublas_workspace,
        )
        # TensorFlow and ONNX Runtime time all of a convolution's algorithms when they first meet it.
        benchmark = target.cudnn_benchmark or target.stack.framework in ("tensorflow", "onnx")
        self.convolutions = convolution_rules(gpu, target.stack.cudnn, benchmark=benchmark, source=convolutions)
        table = WorkspaceTable(facts).with_rules(self.convolutions)
        self._rules: Workspace = TempSpace(trace, table) if target.stack.framework == "mxnet" else table
        self.trace = with_benchmark(trace) if benchmark else trace
        self.has_convolutions = has_convolutions(trace)
        self.has_batch_norm = has_batch_norm(trace)
        self.constants = constants_of(target, trace)
        self._settings = settings = target.settings
        self._endless = settings if isinstance(settings, StoragePoolSettings) else settings.endless()
        self._device_total = gpu.total_memory

    @property
    def room(self) -> int:
        """Bytes of the card that the allocator can have beside all else that the process holds."""
        gpu, context = self.target.gpu, self.constants.context
        if self.target.stack.framework == "jax":
            room = gpu.total_memory
        elif self.target.stack.framework == "tensorflow":
            room = pool_limit(gpu.usable_memory, context, gpu.compute_capability)
        else:
            room = gpu.usable_memory - context
        return max(room - self.constants.reserved - self.communication, 0)

    @property
    def available(self) -> int:
        """Bytes of the card that the job can have in all."""
        gpu, share = self.target.gpu, 1.0
        if isinstance(self._settings, AllocatorSettings):
            share = self._settings.per_process_memory_fraction
        elif self.target.stack.framework == "jax" and isinstance(self._settings, BfcSettings):
            share = self._settings.memory_fraction
        return min(gpu.usable_memory, int(gpu.total_memory * share) + self.constants.context)

    def reserved(self, timeline: Timeline) -> int:
        """The allocator's peak, with what a calibration found that the simulated one misses."""
        return timeline.peak_reserved + self.constants.reserved

    def allocated(self, timeline: Timeline) -> int:
        return min(timeline.peak_allocated + self.constants.allocated, self.reserved(timeline))

    def needed(self) -> int:
        """The least usable device memory, context included, on which the job still runs."""
        return self.least_capacity() + self.constants.reserved + self.constants.context + self.communication

    @property
    def pool_doubles(self) -> bool:
        """Whether the pool grows by ever larger regions, so that a little more of tensors can take much more of it."""
        return isinstance(self._settings, BfcSettings) and self._settings.allow_growth

    def total_if(self, ratio: float) -> int:
        """The device total if every tensor had so many times its size."""
        sizes = tuple(dataclasses.replace(made, nbytes=round(made.nbytes * ratio)) for made in self.trace.allocations)
        other = copy.copy(self)
        other.trace = dataclasses.replace(self.trace, allocations=sizes)
        other.__dict__.pop("_program", None)
        limited = other.run(self.room)
        timeline = limited if limited.ran else other.run()
        return self.reserved(timeline) + self.constants.context + self.communication

    @cached_property
    def _program(self) -> Program:
        """The trace, checked and compiled once for all runs."""
        verify(self.trace)
        return compile_trace(self.trace, self._rules)

    def run(self, capacity: int | None = None) -> Timeline:
        return run_program(
            self._program,
            capacity=capacity,
            settings=self._settings if capacity is not None else self._endless,
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

    @cached_property
    def other_orders(self) -> tuple[int, ...]:
        """Where batches differ in length: the peaks of the reserved bytes if they came in other orders."""
        if len(set(self.trace.workload.get("lengths") or ())) < 2:
            return ()
        return reserved_in_other_orders(
            self._program, _ORDERS_TO_TRY, settings=self._endless, device_total=self._device_total
        )

    def least_capacity(self) -> int:
        return least_capacity_of(self._program, settings=self._endless, device_total=self._device_total)


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


def _about_orders(between: tuple[int, int] | None) -> tuple[str, ...]:
    if between is None:
        return ()
    return (
        f"batches of different lengths come in the order given; in it and {_ORDERS_TO_TRY} others the allocator "
        f"reserves {format_bytes(between[0])} to {format_bytes(between[1])}, and the interval holds them all",
    )


def _verdict(limited: Timeline, p_oom: float, script: ScriptRun | None) -> Verdict:
    if not limited.ran:
        return Verdict.OOM
    if script is not None and script.optimizer_steps < _STEPS_TO_JUDGE:
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
