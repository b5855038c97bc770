"""The allocator's state at the end of a Trace that is still being made: each question costs what was added since."""

from __future__ import annotations

from ..trace import EventKind, Phase, TraceBuilder
from .blocks import Block, SegmentState
from .caching_allocator import CachingAllocator
from .settings import AllocatorSettings
from .workspace import Persistent, Workspace

__all__ = ["LiveMemory"]


class LiveMemory:
    """Torch's caching allocator, kept up with a `TraceBuilder`.

    It answers what `simulate` would, were the Trace cut here (tests/simulate/test_live_memory.py holds them together),
    on a device without end.
    """

    def __init__(self, builder: TraceBuilder, workspace: Workspace, settings: AllocatorSettings | None = None) -> None:
        self._builder = builder
        self._workspace = workspace
        self._allocator = CachingAllocator(settings)
        self._blocks: dict[int, Block] = {}
        self._persistent: set[str] = set()
        self._seen = 0
        self._marks_seen = 0
        self._phase = Phase.BUILD

    def now(self) -> CachingAllocator:
        """The allocator after all events so far; its peaks are those since `reset_peaks`."""
        allocator, builder, blocks = self._allocator, self._builder, self._blocks
        marks = builder.marks_from(self._marks_seen)
        self._marks_seen += len(marks)
        upcoming = iter(marks)
        mark = next(upcoming, None)
        for position, (kind, index) in enumerate(builder.events_from(self._seen), self._seen):
            while mark is not None and mark.position <= position:
                self._phase, mark = mark.phase, next(upcoming, None)
            if kind == EventKind.ALLOCATE:
                blocks[index] = allocator.allocate(builder.nbytes_of(index), builder.stream_of(index))
            elif kind == EventKind.FREE:
                allocator.release(blocks.pop(index))
            elif kind == EventKind.LET_GO:
                allocator.let_go(blocks[index])
            elif kind == EventKind.KERNEL:
                self._run_kernel(index)
            else:
                allocator.empty_cache()
        self._seen = builder.event_count
        while mark is not None:
            self._phase, mark = mark.phase, next(upcoming, None)
        return allocator

    def _run_kernel(self, index: int) -> None:
        need = self._workspace(self._builder.kernel_call(index), self._phase)
        if isinstance(need, Persistent):
            if need.key not in self._persistent and need.nbytes:
                self._persistent.add(need.key)
                self._allocator.allocate(need.nbytes)
        elif need is not None and need.alternatives and need.alternatives[0]:
            self._allocator.release(self._allocator.allocate(need.alternatives[0]))

    def reset_peaks(self) -> None:
        self.now().reset_peaks()

    def segments(self) -> tuple[SegmentState, ...]:
        return self.now().layout()
