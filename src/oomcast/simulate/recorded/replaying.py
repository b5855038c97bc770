"""A recording replayed: does the model of the allocator make the choices the real one made?"""

from __future__ import annotations

from dataclasses import dataclass

from ..blocks import Block, SegmentState
from ..caching_allocator import CachingAllocator
from ..settings import AllocatorSettings
from .expandable_start import Inconsistent
from .snapshot import RecordedEvent, Snapshot
from .start_state import StartState, start_state

__all__ = ["Divergence", "ReplayResult", "replay"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where the simulated allocator chose otherwise than the recorded one."""

    event: int
    """Number of the event in the recording."""
    what: str


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A recording against its replay. Under settings other than the recorded ones, the difference is the answer."""

    recorded_reserved: int
    """Bytes of all segments at the end of the recording."""
    simulated_reserved: int
    exact: bool
    """The two are equal to the byte."""
    starts_from_known_state: bool
    reason: str
    """Why the state at the start is not known; "" when it is."""
    events: int
    allocations: int
    """Allocations in the recording: as many addresses were compared."""
    addresses_equal: int
    """How many of them the simulation placed at the recorded address."""
    layout_equal: bool
    """At the end, all segments and blocks are the recorded ones: address, size and whether in use."""
    start_reserved: int
    recorded_peak_reserved: int
    simulated_peak_reserved: int
    simulated_peak_allocated: int
    divergence: Divergence | None
    settings: AllocatorSettings
    """The settings replayed under."""


def replay(snapshot: Snapshot, settings: AllocatorSettings | None = None) -> ReplayResult:
    """Follow the recorded requests and frees through the simulated allocator, which places the blocks itself.

    It starts from the state the recording began in. New segments get the addresses they got, so that ties between
    blocks of one size fall as they fell. Under other `settings` (a what-if) only requests, frees and the moments
    when the cache was released are followed.
    """
    reason = ""
    try:
        start = start_state(snapshot)
    except Inconsistent as error:
        start, reason = StartState((), 0), f"the recording does not tell its start: {error}."
    run = _Replay(snapshot, settings or snapshot.settings)
    run.start(start.segments)
    start_reserved = run.allocator.reserved
    for number, event in enumerate(snapshot.events):
        run.step(number, event)
    run.finish()
    if start.unsure and run.divergence is not None:
        reason = f"the recording does not tell how large {start.unsure} of the blocks were that it starts with."
    return ReplayResult(
        recorded_reserved=snapshot.reserved,
        simulated_reserved=run.allocator.reserved,
        exact=run.allocator.reserved == snapshot.reserved,
        starts_from_known_state=not reason,
        reason=reason,
        events=len(snapshot.events),
        allocations=run.allocations,
        addresses_equal=run.addresses_equal,
        layout_equal=_layout(run.allocator.layout()) == _layout(snapshot.segments),
        start_reserved=start_reserved,
        recorded_peak_reserved=_recorded_peak(snapshot),
        simulated_peak_reserved=run.allocator.peak_reserved,
        simulated_peak_allocated=run.allocator.peak_allocated,
        divergence=run.divergence,
        settings=run.allocator.settings,
    )


class _Replay:
    def __init__(self, snapshot: Snapshot, settings: AllocatorSettings) -> None:
        self.follows_segments = settings == snapshot.settings
        self.allocator = CachingAllocator(settings, segment_source=self._segment_address)
        self.allocations = self.addresses_equal = 0
        self.divergence: Divergence | None = None
        self._live: dict[int, Block] = {}
        """By recorded address."""
        self._announced: list[RecordedEvent] = []
        """Segments the recording made since the last allocation: one of them is for the next."""
        self._recorded_change = 0
        """Bytes the recording reserved, less those it returned."""
        self._start_reserved = 0
        self._number = 0
        self._cache_is_empty = False
        """All of the cache was released in the current run of releases."""
        # Past everything recorded, so that a segment the recording never made cannot collide with one it did.
        highest = [event.address + event.size for event in snapshot.events]
        highest += [segment.address + segment.size for segment in snapshot.segments]
        self._unused = max(highest, default=0) + (1 << 41)

    def start(self, segments: tuple[SegmentState, ...]) -> None:
        for segment in segments:
            for block in self.allocator.adopt(segment):
                self._live[block.address] = block
        self._start_reserved = self.allocator.reserved

    def step(self, number: int, event: RecordedEvent) -> None:
        self._number = number
        action = event.action
        self._recorded_change += _RESERVES.get(action, 0) * event.size
        if action not in ("segment_free", "segment_unmap"):
            self._cache_is_empty = False
        if action == "alloc":
            self._allocate(event)
        elif action == "free_completed":
            block = self._live.pop(event.address, None)
            if block is None:
                self._diverge("frees a block that is not known")
            else:
                self.allocator.release(block)
        elif action in ("segment_alloc", "segment_map"):
            self._announced.append(event)
        elif action == "segment_free":
            self._return_segment(event)
        elif action == "segment_unmap":
            self._empty_cache()

    def finish(self) -> None:
        self._compare_reserved()

    def _allocate(self, event: RecordedEvent) -> None:
        block = self.allocator.allocate(event.size, event.stream)
        self.allocations += 1
        if block.address == event.address:
            self.addresses_equal += 1
        else:
            self._diverge(f"puts {event.size} bytes at {event.address}, the simulation at {block.address}")
        self._live[event.address] = block
        self._announced.clear()
        self._compare_reserved()

    def _segment_address(self, size: int, stream: int) -> int:
        for event in self._announced:
            # An expandable segment is announced by the first memory mapped into it, which is less than its size.
            fits = event.size == size or event.action == "segment_map"
            if fits and event.stream == stream and event.address not in self.allocator.segments:
                return event.address
        address = self._unused
        self._unused += size
        return address

    def _return_segment(self, event: RecordedEvent) -> None:
        if not self.follows_segments:
            # Under other settings there are other segments; the moment of release is the same.
            self._empty_cache()
        elif not self.allocator.release_segment(event.address) and not self._cache_is_empty:
            self._diverge(f"returns the segment at {event.address}, which the simulation does not have or uses")

    def _empty_cache(self) -> None:
        # torch unmaps all that it can at once, so the first of a run of these events stands for all.
        if not self._cache_is_empty:
            self.allocator.empty_cache()
        self._cache_is_empty = True

    def _compare_reserved(self) -> None:
        recorded = self._start_reserved + self._recorded_change
        if recorded != self.allocator.reserved:
            self._diverge(f"holds {recorded} bytes, the simulation {self.allocator.reserved}")

    def _diverge(self, what: str) -> None:
        if self.divergence is None and self.follows_segments:
            self.divergence = Divergence(self._number, f"the recording {what}")


_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _recorded_peak(snapshot: Snapshot) -> int:
    changes = [_RESERVES.get(event.action, 0) * event.size for event in snapshot.events]
    level = snapshot.reserved - sum(changes)
    peak = level
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak


def _layout(segments: tuple[SegmentState, ...]) -> list[tuple[int, bool, list[tuple[int, int, bool]]]]:
    return [
        (part.stream, part.is_small, [(block.address, block.size, block.live) for block in part.blocks])
        for segment in segments
        for part in segment.mapped_parts()
    ]
