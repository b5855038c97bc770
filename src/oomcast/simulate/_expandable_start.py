"""Where expandable segments lay, and what of them was mapped, when a recording began.

A snapshot tells the mapped stretches, not the address space around them. torch keeps one expandable segment per
stream and pool until its address space is used up, so all stretches of one stream and pool are taken for one
segment that begins at the lowest of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..units import GiB
from ._blocks import BlockState
from ._settings import SMALL_REQUEST, SMALL_SEGMENT
from ._snapshot import RecordedEvent, Snapshot

__all__ = ["Extent", "Inconsistent", "expandable_at_start"]

_PAGE = SMALL_SEGMENT
"""All mapping is in multiples of this."""
_MOST_ADDRESS_SPACE = 1152 * GiB
_NEAR = 64 * GiB


class Inconsistent(Exception):
    """The recording contradicts itself, or holds something that cannot be undone; the text says what."""


@dataclass(slots=True)
class Extent:
    """A segment at the start of the recording, without its blocks."""

    address: int
    size: int
    stream: int
    is_small: bool
    mapped: frozenset[int] | None = None
    """Addresses of the 2 MiB pages with memory behind them; None for a segment that is all memory."""

    def is_mapped(self, address: int, size: int) -> bool:
        return self.mapped is None or all(page in self.mapped for page in _pages(address, size))

    def idle_blocks(self, start: int, end: int) -> Iterator[BlockState]:
        """What fills a stretch without live blocks: free where mapped, and unmapped."""
        if start >= end:
            return
        if self.mapped is None:
            yield BlockState(start, end - start, live=False)
            return
        # Only mapped pages are gone through: the address space is a thousand times larger.
        inside = sorted(page for page in self.mapped if start - _PAGE < page < end)
        at = start
        for first, last in _runs(inside):
            first, last = max(first, start), min(last, end)
            if at < first:
                yield BlockState(at, first - at, live=False, mapped=False)
            yield BlockState(first, last - first, live=False)
            at = last
        if at < end:
            yield BlockState(at, end - at, live=False, mapped=False)


def expandable_at_start(snapshot: Snapshot) -> list[Extent]:
    """The expandable segments, one per stream and pool that ever had memory; raises `Inconsistent`."""
    owners = _owners(snapshot)
    mapped = {
        page for segment in snapshot.segments if segment.is_expandable for page in _pages(segment.address, segment.size)
    }
    for event in reversed(snapshot.events):
        if event.action == "segment_map":
            pages = set(_pages(event.address, event.size))
            if not pages <= mapped:
                raise Inconsistent(f"memory mapped at {event.address} is gone without having been unmapped")
            mapped -= pages
        elif event.action == "segment_unmap":
            pages = set(_pages(event.address, event.size))
            if pages & mapped:
                raise Inconsistent(f"memory unmapped at {event.address} is still there")
            mapped |= pages
    extents = []
    for stream, is_small in sorted({owners[page] for page in mapped}):
        own = {page for page in mapped if owners[page] == (stream, is_small)}
        reached = _reached(own, (stream, is_small), snapshot)
        elsewhere = [page for page in owners if page not in reached] + [part.address for part in snapshot.segments]
        base, last = min(reached), max(reached)
        # It cannot reach into what is known to be another one's.
        size = min([_MOST_ADDRESS_SPACE, *(address - base for address in elsewhere if address > last)])
        extents.append(Extent(base, size, stream, is_small, frozenset(own)))
    return extents


def _reached(start: set[int], owner: tuple[int, bool], snapshot: Snapshot) -> set[int]:
    """All pages a segment had before it was all unmapped: then torch drops it, and the next one begins elsewhere."""
    mapped, reached = set(start), set(start)
    for event in snapshot.events:
        if event.action == "segment_map" and (event.stream, event.size == _PAGE) == owner:
            pages = _pages(event.address, event.size)
            mapped.update(pages)
            reached.update(pages)
        elif event.action == "segment_unmap":
            mapped.difference_update(_pages(event.address, event.size))
            if not mapped:
                break
    return reached


def _owners(snapshot: Snapshot) -> dict[int, tuple[int, bool]]:
    """Every page that ever had memory → stream and whether it is the small pool's."""
    owners: dict[int, tuple[int, bool]] = {}
    for segment in snapshot.segments:
        if segment.is_expandable:
            owners.update(dict.fromkeys(_pages(segment.address, segment.size), (segment.stream, segment.is_small)))
    used: dict[int, bool] = {}
    for event in snapshot.events:
        if event.action == "segment_map":
            # A small request never needs more than one page, and a large one's pages are larger.
            owner = (event.stream, event.size == _PAGE)
            owners.update(dict.fromkeys(_pages(event.address, event.size), owner))
        elif event.action in ("alloc", "free_completed"):
            used[event.address // _PAGE * _PAGE] = snapshot.settings.round_size(event.size) <= SMALL_REQUEST
    for event in snapshot.events:
        if event.action == "segment_unmap":
            pages = _pages(event.address, event.size)
            owner = (event.stream, _is_small(event, owners, used, snapshot.settings.large_segment_size))
            owners.update(dict.fromkeys((page for page in pages if page not in owners), owner))
    return owners


def _is_small(
    unmapped: RecordedEvent, owners: dict[int, tuple[int, bool]], used: dict[int, bool], large_page: int
) -> bool:
    """Whose memory was unmapped: told by what is known of its pages, by its size, or by what lies near."""
    for page in _pages(unmapped.address, unmapped.size):
        if page in owners:
            return owners[page][1]
        if page in used:
            return used[page]
    if unmapped.size % large_page:
        return True
    near = [
        page
        for page, (stream, _) in owners.items()
        if stream == unmapped.stream and abs(page - unmapped.address) < _NEAR
    ]
    return bool(near) and owners[min(near, key=lambda page: abs(page - unmapped.address))][1]


def _pages(address: int, size: int) -> range:
    first = address // _PAGE * _PAGE
    return range(first, address + size, _PAGE)


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring pages joined to stretches."""
    start = end = -1
    for page in pages:
        if page != end:
            if end > start:
                yield start, end
            start = page
        end = page + _PAGE
    if end > start:
        yield start, end
