"""What the allocator did, action by action: the record behind a Timeline, for those who draw it or write it down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..trace import Category, Trace, verify
from .allocators import Allocator, Settings, let_go, new_allocator
from .blocks import Block, Pool, Segment, SegmentState
from .caching_allocator import CachingAllocator, DeviceFull
from .expandable import page_size
from .program import ALLOCATE, BORROW, FREE, LET_GO, Program, Span, compile_trace
from .settings import AllocatorSettings
from .workspace import Workspace, WorkspaceTable

__all__ = ["Action", "ActionKind", "History", "record_history"]


class ActionKind(str, Enum):
    """The names are those of torch's memory snapshots; a free block is free at once."""

    ALLOCATE = "alloc"
    FREE = "free_completed"
    NEW_SEGMENT = "segment_alloc"
    SEGMENT_RETURNED = "segment_free"
    MAPPED = "segment_map"
    UNMAPPED = "segment_unmap"


class Action(NamedTuple):
    position: int
    """Number of the event in the trace."""
    kind: ActionKind
    address: int
    size: int
    """Bytes of the block, rounded by the allocator, or of the segment."""
    requested: int
    """Bytes that were asked for; for segments their size."""
    stream: int
    allocation: int | None
    """Index in `Trace.allocations`; None for workspaces and segments."""
    name: str
    """The operator that asked, or the workspace's name; "" for segments."""
    reserved: int
    """Bytes of all segments afterwards."""


@dataclass(frozen=True, slots=True)
class History:
    """Every action of one simulated run, from an empty allocator on."""

    trace: Trace
    """As it was simulated: with what cuDNN's benchmark takes, where that is on."""
    actions: tuple[Action, ...]
    spans: tuple[Span, ...]
    segments: tuple[SegmentState, ...]
    """At the end, as torch lists them; none for allocators other than torch's."""
    settings: Settings

    def category_of(self, action: Action) -> Category:
        return Category.WORKSPACE if action.allocation is None else self.trace.allocations[action.allocation].category

    def peak(self) -> int:
        """Number of the action that makes the most bytes allocated, the first of equals; -1 if none allocates."""
        level = highest = 0
        peak = -1
        for number, action in enumerate(self.actions):
            if action.kind is ActionKind.ALLOCATE:
                level += action.size
                if level > highest:
                    highest, peak = level, number
            elif action.kind is ActionKind.FREE:
                level -= action.size
        return peak

    def live_at_peak(self) -> tuple[Action, ...]:
        """How the blocks in use at the peak were taken, in that order."""
        live: dict[int, Action] = {}
        for action in self.actions[: self.peak() + 1]:
            if action.kind is ActionKind.ALLOCATE:
                live[action.address] = action
            elif action.kind is ActionKind.FREE:
                del live[action.address]
        return tuple(live.values())


def record_history(
    trace: Trace,
    *,
    capacity: int | None = None,
    settings: Settings | None = None,
    workspace: Workspace | None = None,
    device_total: int | None = None,
) -> History:
    """`simulate`, for a trace that is known to run in `capacity`, with all that happened instead of its figures."""
    verify(trace)
    program = compile_trace(trace, workspace or WorkspaceTable())
    if settings is None or isinstance(settings, AllocatorSettings):
        segments: list[_SegmentAction] = []
        caching = _TellingAllocator(segments, settings, capacity=capacity, device_total=device_total)
        actions = _Recording(program, caching, segments).run()
        parts = tuple(part for segment in caching.layout() for part in segment.mapped_parts())
        return History(trace, actions, program.spans, parts, caching.settings)
    other = new_allocator(settings, capacity=capacity, device_total=device_total)
    return History(trace, _Recording(program, other, []).run(), program.spans, (), settings)


_SegmentAction = tuple[ActionKind, int, int, int, int]
"""Kind, address, size, stream and the reserved bytes afterwards."""


class _Recording:
    """One pass over a program. `segments` is what the allocator says of them, before each block it gives."""

    def __init__(self, program: Program, allocator: Allocator, segments: list[_SegmentAction]) -> None:
        self.program = program
        self.allocator = allocator
        self.segments = segments
        self.actions: list[Action] = []

    def run(self) -> tuple[Action, ...]:
        known = len(self.program.trace.allocations)
        blocks: dict[int, Block] = {}
        for span in self.program.spans:
            for position, kind, slot, nbytes, stream in span.instructions:
                allocation = slot if slot < known else None
                if kind == ALLOCATE:
                    blocks[slot] = self._allocate(position, nbytes, stream, allocation, self.program.name_of(slot))
                elif kind == FREE:
                    self._free(position, blocks.pop(slot), allocation, self.program.name_of(slot))
                elif kind == BORROW:
                    self._borrow(position, slot)
                elif kind == LET_GO:
                    let_go(self.allocator, blocks[slot])
                else:
                    self.allocator.empty_cache()
                    self._tell_segments(position)
        return tuple(self.actions)

    def _borrow(self, position: int, number: int) -> None:
        name = self.program.kernel_at(position)
        for nbytes in self.program.borrowed[number]:
            if nbytes == 0:
                return
            try:
                block = self._allocate(position, nbytes, 0, None, name)
            except DeviceFull:
                self._tell_segments(position)
                continue
            self._free(position, block, None, name)
            return

    def _allocate(self, position: int, nbytes: int, stream: int, allocation: int | None, name: str) -> Block:
        block = self.allocator.allocate(nbytes, stream)
        self._tell_segments(position)
        self._note(position, ActionKind.ALLOCATE, block, allocation, name)
        return block

    def _free(self, position: int, block: Block, allocation: int | None, name: str) -> None:
        # Before it is released, since a free block merges with its neighbours.
        self._note(position, ActionKind.FREE, block, allocation, name)
        self.allocator.release(block)

    def _note(self, position: int, kind: ActionKind, block: Block, allocation: int | None, name: str) -> None:
        stream, reserved = block.segment.pool.stream, self.allocator.reserved
        self.actions.append(
            Action(position, kind, block.address, block.size, block.requested, stream, allocation, name, reserved)
        )

    def _tell_segments(self, position: int) -> None:
        for kind, address, size, stream, reserved in self.segments:
            self.actions.append(Action(position, kind, address, size, size, stream, None, "", reserved))
        self.segments.clear()


class _TellingAllocator(CachingAllocator):
    """torch's allocator that also says which segments come and go, and which pages of expandable ones."""

    def __init__(
        self,
        segments: list[_SegmentAction],
        settings: AllocatorSettings | None,
        *,
        capacity: int | None,
        device_total: int | None,
    ) -> None:
        super().__init__(settings, capacity=capacity, device_total=device_total)
        self._segment_actions = segments
        self._pages: dict[int, tuple[int, int]] = {}
        """Mapped pages of expandable segments: address → size and stream."""

    def new_segment(self, pool: Pool, size: int, page: int = 0) -> Segment:
        segment = super().new_segment(pool, size, page)
        if not page:
            # It is counted by the caller only afterwards.
            self._tell(ActionKind.NEW_SEGMENT, segment.address, size, pool.stream, self.reserved + size)
        return segment

    def allocate(self, nbytes: int, stream: int = 0) -> Block:
        reserved, retries = self.reserved, self.retries
        try:
            block = super().allocate(nbytes, stream)
        except DeviceFull:
            self._tell_all_pages()
            raise
        if self.settings.expandable_segments and (self.reserved, self.retries) != (reserved, retries):
            if self.reserved > reserved and self.retries == retries:
                self._tell_new_pages(block, reserved)
            else:
                self._tell_all_pages()
        return block

    def empty_cache(self) -> None:
        super().empty_cache()
        self._tell_all_pages()

    def _return_segment(self, block: Block) -> None:
        super()._return_segment(block)
        self._tell(ActionKind.SEGMENT_RETURNED, block.address, block.size, block.segment.pool.stream, self.reserved)

    def _tell(self, kind: ActionKind, address: int, size: int, stream: int, reserved: int) -> None:
        self._segment_actions.append((kind, address, size, stream, reserved))

    def _tell_new_pages(self, block: Block, reserved: int) -> None:
        """Memory is mapped where the new block needs it: from its first page to the end of the rest behind it."""
        segment = block.segment
        rest = block.next
        end = block.address + block.size + (rest.size if rest is not None and rest.mapped and not rest.live else 0)
        first = segment.address + (block.address - segment.address) // segment.page * segment.page
        for address in range(first, end, segment.page):
            if address not in self._pages:
                reserved += segment.page
                self._map(address, segment.page, segment.pool.stream, reserved)

    def _tell_all_pages(self) -> None:
        if not self.settings.expandable_segments:
            return
        mapped: dict[int, tuple[int, int]] = {}
        for segment in self.layout():
            page = page_size(self, segment.is_small)
            for part in segment.mapped_parts():
                mapped |= dict.fromkeys(range(part.address, part.address + part.size, page), (page, part.stream))
        gone = sorted(self._pages.keys() - mapped.keys())
        reserved = sum(size for size, _ in self._pages.values())
        for address in gone:
            size, stream = self._pages.pop(address)
            reserved -= size
            self._tell(ActionKind.UNMAPPED, address, size, stream, reserved)
        for address in sorted(mapped.keys() - self._pages.keys()):
            size, stream = mapped[address]
            reserved += size
            self._map(address, size, stream, reserved)

    def _map(self, address: int, size: int, stream: int, reserved: int) -> None:
        self._pages[address] = (size, stream)
        self._tell(ActionKind.MAPPED, address, size, stream, reserved)
