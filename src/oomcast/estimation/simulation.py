"""A Trace through the simulated allocator of its target, and the bounds of what comes out."""

from __future__ import annotations

import copy
import dataclasses
from functools import cached_property
from typing import NamedTuple

from ..devices import NcclFigure, context_bytes, context_figure
from ..simulate import (
    AllocatorSettings,
    BfcSettings,
    DeviceFacts,
    History,
    Program,
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
from ..spec import FRAMEWORKS
from ..trace import Category, Trace, verify
from .answer import IntervalBasis
from .calibration import Constants
from .doubt import Doubt
from .interval import load_interval
from .target import Target

__all__ = ["NO_RANKS", "ORDERS_TO_TRY", "Bounds", "Simulation", "bounds_of", "constants_of"]

ORDERS_TO_TRY = 8
UNASKED_COMPILER = 6.5
"""How many times as wide the interval is where XLA's plan is modelled. So wide, it holds XLA's own figure for 42 of the
44 steps on one GPU of `python -m lab bench xla`; as wide as for others it held it for 25."""
NO_RANKS = NcclFigure()
"""What NCCL takes on one GPU."""


class Bounds(NamedTuple):
    """What a total may really be. Bytes."""

    low: int
    high: int
    not_exceeded: int
    above: int
    """By how much the context and NCCL's buffers may be larger than they were taken to be."""


def bounds_of(simulation: Simulation, timeline: Timeline, device_total: int) -> Bounds:
    """Around the total of one run of the simulation."""
    target, constants, maker = simulation.target, simulation.constants, simulation.target.gpu.maker
    interval = simulation.basis.interval
    # Real runs that contradict each other: whichever is right, the bounds must hold it.
    above, below = constants.context_at_most - constants.context, constants.context - constants.context_at_least
    if maker is not None:
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
    return Bounds(max(low - below, 0), high + above, not_exceeded + above, above)


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
        self, trace: Trace, target: Target, convolutions: Source = "auto", communication: NcclFigure = NO_RANKS
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
        self.convolutions = convolution_rules(
            gpu,
            target.stack.cudnn,
            allow_tf32=trace.settings.cudnn_tf32,
            benchmark=benchmark,
            deterministic=trace.settings.cudnn_deterministic,
            source=convolutions,
        )
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
        elif isinstance(self._settings, BfcSettings) and self._settings.most is not None:
            return min(gpu.usable_memory, self._settings.most + self.constants.context)
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
        settings = self._settings
        return isinstance(settings, BfcSettings) and settings.allow_growth and not settings.as_requested

    def total_if(self, ratio: float) -> int:
        """The device total if every tensor had so many times its size."""
        sizes = tuple(dataclasses.replace(made, nbytes=round(made.nbytes * ratio)) for made in self.trace.allocations)
        other = copy.copy(self)
        other.trace = dataclasses.replace(self.trace, allocations=sizes)
        for known in ("_program", "on_the_card", "unlimited"):
            other.__dict__.pop(known, None)
        timeline = other.on_the_card if other.on_the_card.ran else other.unlimited
        return self.reserved(timeline) + self.constants.context + self.communication

    @cached_property
    def on_the_card(self) -> Timeline:
        return self.run(self.room)

    @cached_property
    def unlimited(self) -> Timeline:
        """On a device without end: torch's allocator does the same on a card that it never finds full."""
        settings = self._settings
        if not isinstance(settings, AllocatorSettings) or settings.garbage_collection_threshold:
            return self.run()
        free = self.on_the_card.ran and not self.on_the_card.retries
        return self.on_the_card if free else self.run()

    @cached_property
    def doubt(self) -> Doubt | None:
        """What drives the error of this job; None for allocators of which no run was measured."""
        if not isinstance(self._settings, AllocatorSettings):
            return None
        cache = self.unlimited.peak_reserved - self.unlimited.peak_allocated
        workspace = max((sizes[0] for sizes in self._program.borrowed), default=0)
        return Doubt(cache, workspace, self._context_beyond())

    def _context_beyond(self) -> int:
        """What the runs behind the interval do not tell of: a context that was read off other cards, or reports."""
        gpu, stack = self.target.gpu, self.target.stack
        if self.constants.context_is_measured or gpu.maker is not None:  # a maker's range is added to the bounds
            return self.constants.context_error
        figure = context_figure(gpu, stack)
        return 0 if figure.basis == "measured" else figure.high - figure.typical

    @cached_property
    def basis(self) -> IntervalBasis:
        """What the bounds of this job rest on."""
        measured, maker = load_interval(self.constants.context_is_sure), self.target.gpu.maker
        total = self.reserved(self.unlimited) + self.constants.context + self.communication
        return IntervalBasis(
            measured.runs,
            self.constants.context_is_sure,
            measured.spread(self.doubt, total),
            1.0 if maker is None else maker.spread,
            self.doubt,
            UNASKED_COMPILER if self.trace.plan_is_modelled else 1.0,
        )

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
            self._program, ORDERS_TO_TRY, settings=self._endless, device_total=self._device_total
        )

    def least_capacity(self) -> int:
        return least_capacity_of(
            self._program, settings=self._endless, device_total=self._device_total, endless=self.unlimited
        )
