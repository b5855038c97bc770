"""What a job's memory does over time on a device: a Trace run through the device's allocator.

`simulate` runs it once on a device of one size; the least size that it still runs with is found by `least_capacity.py`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ..trace import Category, Phase, Trace, verify
from .allocators import Allocator, Settings, let_go, new_allocator
from .blocks import Block
from .caching_allocator import DeviceFull, FirstRefusal
from .program import ALLOCATE, BORROW, FREE, LET_GO, Instruction, Program, Span, compile_trace
from .workspace import Workspace, WorkspaceTable

__all__ = [
    "Failure",
    "LiveBlock",
    "Peak",
    "Run",
    "SpanPeak",
    "Timeline",
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
        self.done = 0
        """Instructions of the span that is under way, where the allocator stopped in it."""
        self.peak_allocated = self.peak_requested = 0
        self._peak: tuple[int, Phase, int, int, int] = (-1, Phase.BUILD, -1, 0, 0)
        self.allocated_curve: array[int] | None = array("q") if record_curve else None
        self.reserved_curve: array[int] | None = array("q") if record_curve else None
        self._blocks: dict[int, Block] = {}
        self._sizes = [0] * program.slots
        self._borrowed = self._borrowed_at_peak = 0

    @property
    def peak(self) -> Peak:
        return Peak(*self._peak)

    def goes_on_with(self, allocator: Allocator, blocks: Mapping[int, Block]) -> Run:
        """The same run from here on, with a copy of its allocator; `blocks`: of the copy, by their addresses."""
        other = Run(self.program, allocator)
        other.peak_allocated, other.peak_requested, other._peak = self.peak_allocated, self.peak_requested, self._peak
        other._blocks = {slot: blocks[block.address] for slot, block in self._blocks.items()}
        other._sizes = self._sizes.copy()
        return other

    def span(self, span: Span, begin: int = 0) -> SpanPeak:
        """Run one span, or up to the request that fails in it. `begin`: which instruction of it comes next."""
        blocks, sizes, allocator = self._blocks, self._sizes, self.allocator
        draws = self.allocated_curve is not None
        if not begin:
            allocator.reset_peaks()
        instruction: Instruction = (span.first, ALLOCATE, 0, 0, 0)
        try:
            for instruction in span.instructions[begin:] if begin else span.instructions:
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
        except FirstRefusal:
            self.done = span.instructions.index(instruction, begin)
            raise
        if draws:
            self._draw(span.end if self.failure is None else self.failure.position)
        self.peak_requested = max(self.peak_requested, allocator.peak_requested)
        return SpanPeak(
            span.phase, span.step, span.first, allocator.peak_allocated, allocator.peak_reserved, allocator.allocated
        )

    def live_at_peak(self) -> tuple[LiveBlock, ...]:
        """Which blocks made the peak: found by walking up to it again, so that running costs nothing extra."""
        program, peak = self.program, self.peak.position
        live: dict[int, None] = {}
        for span in program.spans:
            for position, kind, slot, _, _ in span.instructions:
                if position > peak:
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
            name = program.kernel_at(peak)
            blocks.append(LiveBlock(self._borrowed_at_peak, Category.WORKSPACE, None, name))
        return tuple(blocks)

    def _note_peak(self, position: int, span: Span, borrowed: int = 0) -> None:
        allocator = self.allocator
        self.peak_allocated = allocator.allocated
        self._peak = (position, span.phase, span.step, allocator.reserved, allocator.inactive_split)
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
