"""What a job's memory does over time on a device: a Trace run through the device's allocator.

`simulate` runs it once on a device of one size. `least_capacity` finds the least memory that it still runs with, which
is less than it reserves where nothing limits it: a full device releases its cache and tries again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..trace import Category, Phase, Trace, verify
from .allocators import Allocator, Settings, let_go, new_allocator
from .blocks import Block
from .caching_allocator import CachingAllocator, DeviceFull
from .program import ALLOCATE, BORROW, FREE, LET_GO, Instruction, Program, Span, compile_trace
from .settings import SMALL_SEGMENT
from .workspace import Workspace, WorkspaceTable

__all__ = [
    "Failure",
    "LiveBlock",
    "Peak",
    "Run",
    "SpanPeak",
    "Timeline",
    "least_capacity",
    "least_capacity_of",
    "run_program",
    "simulate",
]


@dataclass(frozen=True, slots=True)
class LiveBlock:
    """A block in use at the peak."""

    size: int
    """Bytes of the block: the request, rounded by the allocator."""
    category: Category
    allocation: int | None
    """Index in `Trace.allocations`; None for a workspace."""
    name: str
    """The operator that asked for it, or the workspace's name."""


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment of the highest allocated bytes."""

    position: int
    """Number of the event in the trace; -1 for a trace that never allocates."""
    phase: Phase
    step: int
    reserved: int
    """Reserved bytes at that moment."""
    inactive_split: int
    """Free bytes stuck in segments that were partly in use at that moment."""


@dataclass(frozen=True, slots=True)
class SpanPeak:
    """The highest bytes within one phase of one step, what it found at its start included."""

    phase: Phase
    step: int
    first: int
    """Number of its first event."""
    allocated: int
    reserved: int
    end_allocated: int
    """What was in use when it ended."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The request that found the device full, with the cache already released."""

    position: int
    phase: Phase
    step: int
    allocation: int | None
    """Index in `Trace.allocations`; None for a workspace."""
    name: str
    requested: int
    segment_size: int
    """What the device was asked for."""
    allocated: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that the simulation saw. After a failure, the figures are those up to it."""

    peak_allocated: int
    peak_reserved: int
    peak_requested: int
    peak: Peak
    live_at_peak: tuple[LiveBlock, ...]
    """In the order they were allocated; their sizes sum to `peak_allocated`."""
    breakdown: Mapping[str, int]
    """Bytes by category at the peak; they sum to `peak_allocated`."""
    spans: tuple[SpanPeak, ...]
    end_allocated: int
    end_reserved: int
    end_inactive_split: int
    retries: int
    """How often a full device made the allocator release its whole cache and ask again."""
    failure: Failure | None
    kernels_without_rule: Mapping[str, int]
    """Operator → how many of its calls may have taken workspace that is not in these figures."""
    allocated_curve: array[int] | None = None
    """Per event, the highest allocated bytes during it; only when asked for."""
    reserved_curve: array[int] | None = None
    """Per event, the reserved bytes after it; only when asked for."""

    @property
    def ran(self) -> bool:
        return self.failure is None

    @property
    def fragmentation_at_end(self) -> int:
        """Bytes reserved and not allocated."""
        return self.end_reserved - self.end_allocated

    @property
    def fragmentation_at_peak(self) -> int:
        return self.peak.reserved - self.peak_allocated


def simulate(
    trace: Trace,
    *,
    capacity: int | None = None,
    settings: Settings | None = None,
    workspace: Workspace | None = None,
    device_total: int | None = None,
    record_curve: bool = False,
) -> Timeline:
    """Run `trace` on a device that has `capacity` bytes for the allocator (None: no end of it).

    `workspace` answers what each kernel takes (default: cuBLAS on an Ampere card); `device_total` is the whole
    memory of the card, for settings that are shares of it.
    """
    verify(trace)
    program = compile_trace(trace, workspace or WorkspaceTable())
    return run_program(
        program, capacity=capacity, settings=settings, device_total=device_total, record_curve=record_curve
    )


def run_program(
    program: Program,
    *,
    capacity: int | None = None,
    settings: Settings | None = None,
    device_total: int | None = None,
    record_curve: bool = False,
) -> Timeline:
    """`simulate`, for a trace that was compiled before."""
    run = Run(program, new_allocator(settings, capacity=capacity, device_total=device_total), record_curve)
    spans = tuple(run.span(span) for span in program.spans if run.failure is None)
    live = run.live_at_peak()
    breakdown: Counter[str] = Counter()
    for block in live:
        breakdown[block.category.value] += block.size
    allocator = run.allocator
    return Timeline(
        peak_allocated=run.peak_allocated,
        peak_reserved=max(span.reserved for span in spans),
        peak_requested=run.peak_requested,
        peak=run.peak,
        live_at_peak=live,
        breakdown=dict(breakdown),
        spans=spans,
        end_allocated=allocator.allocated,
        end_reserved=allocator.reserved,
        end_inactive_split=allocator.inactive_split,
        retries=allocator.retries,
        failure=run.failure,
        kernels_without_rule=program.kernels_without_rule,
        allocated_curve=run.allocated_curve,
        reserved_curve=run.reserved_curve,
    )


class Run:
    """One pass over a program. Its peaks are its own: those of the allocator start anew with every span."""

    def __init__(self, program: Program, allocator: Allocator, record_curve: bool = False) -> None:
        self.program = program
        self.allocator = allocator
        self.failure: Failure | None = None
        self.peak_allocated = self.peak_requested = 0
        self.peak = Peak(-1, Phase.BUILD, -1, 0, 0)
        self.allocated_curve: array[int] | None = array("q") if record_curve else None
        self.reserved_curve: array[int] | None = array("q") if record_curve else None
        self._blocks: dict[int, Block] = {}
        self._sizes = [0] * program.slots
        self._borrowed = self._borrowed_at_peak = 0

    def span(self, span: Span) -> SpanPeak:
        """Run one span, or up to the request that fails in it."""
        blocks, sizes, allocator = self._blocks, self._sizes, self.allocator
        draws = self.allocated_curve is not None
        allocator.reset_peaks()
        instruction: Instruction = (span.first, ALLOCATE, 0, 0, 0)
        try:
            for instruction in span.instructions:
                position, kind, slot, nbytes, stream = instruction
                if draws:
                    self._draw(position)
                if kind == ALLOCATE:
                    block = blocks[slot] = allocator.allocate(nbytes, stream)
                    sizes[slot] = block.size
                    if allocator.allocated > self.peak_allocated:
                        self._note_peak(position, span)
                elif kind == FREE:
                    allocator.release(blocks.pop(slot))
                elif kind == BORROW:
                    self._borrow(position, slot, span)
                elif kind == LET_GO:
                    let_go(allocator, blocks[slot])
                else:
                    allocator.empty_cache()
        except DeviceFull as full:
            self._fail(full, instruction, span)
        if draws:
            self._draw(span.end if self.failure is None else self.failure.position)
        self.peak_requested = max(self.peak_requested, allocator.peak_requested)
        return SpanPeak(
            span.phase, span.step, span.first, allocator.peak_allocated, allocator.peak_reserved, allocator.allocated
        )

    def live_at_peak(self) -> tuple[LiveBlock, ...]:
        """Which blocks made the peak: found by walking up to it again, so that running costs nothing extra."""
        program = self.program
        live: dict[int, None] = {}
        for span in program.spans:
            for position, kind, slot, _, _ in span.instructions:
                if position > self.peak.position:
                    break
                if kind == ALLOCATE:
                    live[slot] = None
                elif kind in (FREE, LET_GO):
                    live.pop(slot, None)
        known = len(program.trace.allocations)
        blocks = [
            LiveBlock(self._sizes[s], program.category_of(s), s if s < known else None, program.name_of(s))
            for s in live
        ]
        if self._borrowed_at_peak:
            name = program.kernel_at(self.peak.position)
            blocks.append(LiveBlock(self._borrowed_at_peak, Category.WORKSPACE, None, name))
        return tuple(blocks)

    def _note_peak(self, position: int, span: Span, borrowed: int = 0) -> None:
        allocator = self.allocator
        self.peak_allocated = allocator.allocated
        self.peak = Peak(position, span.phase, span.step, allocator.reserved, allocator.inactive_split)
        self._borrowed_at_peak = borrowed

    def _borrow(self, position: int, number: int, span: Span) -> None:
        full: DeviceFull | None = None
        for nbytes in self.program.borrowed[number]:
            if nbytes == 0:
                return
            try:
                block = self.allocator.allocate(nbytes)
            except DeviceFull as error:
                full = error
                continue
            self._borrowed = block.size
            if self.allocator.allocated > self.peak_allocated:
                self._note_peak(position, span, block.size)
            self.allocator.release(block)
            return
        if full is not None:
            raise full

    def _fail(self, full: DeviceFull, instruction: Instruction, span: Span) -> None:
        position, kind, slot, _, _ = instruction
        is_tensor = kind == ALLOCATE and slot < len(self.program.trace.allocations)
        self.failure = Failure(
            position=position,
            phase=span.phase,
            step=span.step,
            allocation=slot if is_tensor else None,
            name=self.program.name_of(slot) if kind == ALLOCATE else self.program.kernel_at(position),
            requested=full.requested,
            segment_size=full.segment_size,
            allocated=full.allocated,
            reserved=full.reserved,
        )

    def _draw(self, upto: int) -> None:
        """Fill the curves up to event number `upto`, which is about to run: events that did nothing change nothing."""
        if self.allocated_curve is None or self.reserved_curve is None:
            return
        missing = upto - len(self.allocated_curve)
        if missing > 0:
            # A workspace borrowed in the event before is part of that event's height only.
            self.allocated_curve.append(self.allocator.allocated + self._borrowed)
            self.allocated_curve.extend([self.allocator.allocated] * (missing - 1))
            self.reserved_curve.extend([self.allocator.reserved] * missing)
            self._borrowed = 0


def least_capacity(
    trace: Trace,
    *,
    settings: Settings | None = None,
    workspace: Workspace | None = None,
    device_total: int | None = None,
) -> int:
    """Bytes the allocator needs at least, to 2 MiB: the job runs with them, and does not with 2 MiB less.

    A full device releases its cache and tries again before it fails, so the answer lies between the peak of the
    allocated bytes and that of the reserved ones. More memory than the answer is enough too, save for rare traces
    whose fragmentation it happens to worsen; from the peak of the reserved bytes on it always is.
    """
    verify(trace)
    program = compile_trace(trace, workspace or WorkspaceTable())
    return least_capacity_of(program, settings=settings, device_total=device_total)


def least_capacity_of(program: Program, *, settings: Settings | None = None, device_total: int | None = None) -> int:
    """`least_capacity`, for a trace that was compiled before."""
    free_run = Run(program, new_allocator(settings, device_total=device_total))
    enough = max((free_run.span(span).reserved for span in program.spans), default=0)
    step = SMALL_SEGMENT
    # Below the allocated peak nothing can run, so one step under it is known to fail.
    too_little = -(-free_run.peak_allocated // step) * step - step
    trials: list[_Trial] = []
    while enough - too_little > step:
        middle = (too_little + (enough - too_little) // 2) // step * step
        if middle <= too_little:
            middle = too_little + step
        trial = next((one for one in trials if one.least <= middle <= one.most), None)
        if trial is None:
            trial = _tried(program, middle, settings, device_total)
            trials.append(trial)
        if trial.runs:
            enough = middle
        else:
            too_little = middle
    return enough


class _Trial(NamedTuple):
    """A run on a device of one size; on all sizes from `least` to `most` it would have been the same, step by step."""

    runs: bool
    least: int
    most: int


def _tried(program: Program, capacity: int, settings: Settings | None, device_total: int | None) -> _Trial:
    """torch's allocator looks at its capacity only when it asks the device for more. A device that is smaller, but not
    than what this run reserved, gives and refuses the same; so does a larger one, up to what was refused here."""
    run = Run(program, new_allocator(settings, capacity=capacity, device_total=device_total))
    reserved = 0
    for span in program.spans:
        reserved = max(reserved, run.span(span).reserved)
        if run.failure is not None:
            break
    allocator, runs = run.allocator, run.failure is None
    # Without a device's total, the address space of expandable segments depends on the capacity, too.
    if not isinstance(allocator, CachingAllocator) or device_total is None:
        return _Trial(runs, capacity, capacity)
    return _Trial(runs, reserved, allocator.least_refused - 1)
