"""What the allocator looked like when a recording began, found by undoing the history from its end.

Every segment and block of the start is either still there at the end or was freed in the history, so the ring
buffer of the recording may have lost any number of earlier events. One thing is not written down: the history
tells requested bytes, and in the large pool a block keeps a rest of up to 1 MiB that is too small to split off.
Such a rest ends where another block is known to begin.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass

from ..blocks import BlockState, SegmentState
from ..settings import MIN_BLOCK, SMALL_REQUEST, SMALL_SEGMENT, AllocatorSettings
from .expandable_start import Extent, Inconsistent, expandable_at_start
from .snapshot import Snapshot

__all__ = ["Inconsistent", "StartState", "start_state"]


@dataclass(slots=True)
class _Live:
    """A block that was live at the start. Its size is exact when it still stands at the end, else a lower bound."""

    address: int
    size: int
    requested: int
    is_exact: bool
    freed_at: int
    """Number of the event that frees it; beyond the last for a block that is never freed."""


@dataclass(frozen=True, slots=True)
class StartState:
    segments: tuple[SegmentState, ...]
    unsure: int
    """How many live blocks may have kept a rest that nothing tells of; they are taken to have none."""


def start_state(snapshot: Snapshot) -> StartState:
    """The segments at the start of the recording; raises `Inconsistent`."""
    if snapshot.has_private_pools:
        raise Inconsistent("it uses private memory pools, as CUDA graphs do")
    segments = _segments_at_start(snapshot) + expandable_at_start(snapshot)
    live = _live_at_start(snapshot)
    starts = sorted(segment.address for segment in segments)
    inside: dict[int, list[_Live]] = {start: [] for start in starts}
    by_address = {segment.address: segment for segment in segments}
    for block in live:
        index = bisect_left(starts, block.address + 1) - 1
        segment = by_address[starts[index]] if index >= 0 else None
        if segment is None or block.address + block.size > segment.address + segment.size:
            raise Inconsistent(f"the block at {block.address} lies in no segment")
        inside[segment.address].append(block)
    boundaries = _Boundaries(snapshot)
    filled = tuple(
        _filled(segment, inside[segment.address], boundaries, snapshot.settings)
        for segment in sorted(segments, key=lambda segment: segment.address)
    )
    return StartState(filled, sum(not block.is_exact for block in live))


def _segments_at_start(snapshot: Snapshot) -> list[Extent]:
    made: dict[int, int] = {}
    start: list[Extent] = []
    for event in snapshot.events:
        if event.action == "segment_alloc":
            made[event.address] = event.size
        elif event.action == "segment_free":
            if event.address in made:
                if made.pop(event.address) != event.size:
                    raise Inconsistent(f"the segment at {event.address} was freed with another size")
            else:
                # Small segments are all of one size, and no large one is as small.
                is_small = event.size == SMALL_SEGMENT
                start.append(Extent(event.address, event.size, event.stream, is_small))
    final = {segment.address: segment for segment in snapshot.segments if not segment.is_expandable}
    for address, size in made.items():
        if address not in final or final[address].size != size:
            raise Inconsistent(f"the segment made at {address} is not there at the end")
    start += [
        Extent(segment.address, segment.size, segment.stream, segment.is_small)
        for segment in final.values()
        if segment.address not in made
    ]
    if len({segment.address for segment in start}) != len(start):
        raise Inconsistent("two segments of the start have one address")
    return start


def _live_at_start(snapshot: Snapshot) -> list[_Live]:
    events, settings = snapshot.events, snapshot.settings
    made: set[int] = set()
    start: dict[int, _Live] = {}
    for number, event in enumerate(events):
        if event.action == "alloc":
            if event.address in made:
                raise Inconsistent(f"the block at {event.address} is allocated twice")
            made.add(event.address)
        elif event.action == "free_completed":
            if event.address in made:
                made.remove(event.address)
            elif event.address in start:
                raise Inconsistent(f"the block at {event.address} is freed twice")
            else:
                size = settings.round_size(event.size)
                start[event.address] = _Live(event.address, size, event.size, False, number)
    for segment in snapshot.segments:
        for block in segment.blocks:
            if not block.live:
                continue
            if block.address in made:
                made.remove(block.address)
            elif block.address in start:
                raise Inconsistent(f"the block at {block.address} was freed and never allocated again, but is in use")
            else:
                start[block.address] = _Live(block.address, block.size, block.requested, True, len(events))
    if made:
        raise Inconsistent(f"{len(made)} blocks were allocated and never freed, but are not there at the end")
    return list(start.values())


class _Boundaries:
    """Addresses where blocks are known to begin, with when."""

    def __init__(self, snapshot: Snapshot) -> None:
        known: dict[int, int] = {}
        for number, event in enumerate(snapshot.events):
            # Blocks begin at multiples of their smallest size; a file that says otherwise must not make a search long.
            if event.action == "alloc" and event.address % MIN_BLOCK == 0:
                known.setdefault(event.address, number)
        self._addresses = sorted(known)
        self._first_seen = known

    def next_after(self, address: int, before_event: int) -> int | None:
        """The first address from `address` on where a block was allocated before that event."""
        for index in range(bisect_left(self._addresses, address), len(self._addresses)):
            candidate = self._addresses[index]
            if candidate > address + SMALL_REQUEST:
                return None
            if self._first_seen[candidate] < before_event:
                return candidate
        return None


def _filled(
    segment: Extent, live: Iterable[_Live], boundaries: _Boundaries, settings: AllocatorSettings
) -> SegmentState:
    blocks: list[BlockState] = []
    end = segment.address + segment.size
    at = segment.address
    ordered = sorted(live, key=lambda block: block.address)
    for index, block in enumerate(ordered):
        follower = ordered[index + 1].address if index + 1 < len(ordered) else end
        if block.address < at:
            raise Inconsistent(f"the blocks at {blocks[-1].address} and {block.address} overlap")
        blocks += segment.idle_blocks(at, block.address)
        if not block.is_exact:
            end_of_block = _end(block, segment, follower, boundaries, settings)
            if end_of_block is not None:
                block.size, block.is_exact = end_of_block - block.address, True
        if not segment.is_mapped(block.address, block.size):
            raise Inconsistent(f"the block at {block.address} has no memory behind it")
        blocks.append(BlockState(block.address, block.size, live=True, requested=block.requested))
        at = block.address + block.size
    if at > end:
        raise Inconsistent(f"the block at {blocks[-1].address} reaches over the end of its segment")
    blocks += segment.idle_blocks(at, end)
    is_expandable = segment.mapped is not None
    return SegmentState(segment.address, segment.size, segment.stream, segment.is_small, tuple(blocks), is_expandable)


def _end(
    block: _Live, segment: Extent, follower: int, boundaries: _Boundaries, settings: AllocatorSettings
) -> int | None:
    """Where the block ends, with a rest too small to split off where the room behind must be one; None: unsure."""
    behind = block.address + block.size
    if segment.is_small or settings.expandable_segments:
        return behind
    if settings.max_split_size is not None and block.size >= settings.max_split_size:
        return follower
    room = follower - behind
    if room <= SMALL_REQUEST:
        # No free block of the large pool is that small. (Less than none is an overlap, found at the follower.)
        return max(follower, behind)
    boundary = boundaries.next_after(behind, block.freed_at)
    return boundary if boundary is not None and boundary < follower else None
