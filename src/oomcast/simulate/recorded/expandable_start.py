"""Where expandable segments lay, and what of them was mapped, when a recording began.

A snapshot tells the mapped stretches, not the address space around them. torch keeps one expandable segment per
stream and pool until its address space is used up, so all stretches of one stream and pool are taken for one
segment that begins at the lowest of them.

Memory is followed page by page (2 MiB). A few bytes of a file can claim a terabyte, so pages are counted, and a
recording that moves more of them than any real one is given up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...units import GiB
from ..blocks import BlockState
from ..settings import SMALL_REQUEST, SMALL_SEGMENT
from .snapshot import RecordedEvent, Snapshot

__all__ = ["Extent", "Inconsistent", "expandable_at_start"]

_PAGE = SMALL_SEGMENT
"""All mapping is in multiples of this."""
_MOST_ADDRESS_SPACE = 1152 * GiB
_NEAR = 64 * GiB
_MOST_PAGES = 1 << 19
"""Different pages that ever had memory: 1 TiB."""
_PAGES_MOVED = 1 << 21
"""Pages that are mapped and unmapped, in sum: 4 TiB, and besides …"""
_PAGES_AN_EVENT = 64
"""… so many for each event on average."""


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
    _ordered: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._ordered = sorted(self.mapped or ())

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
        pages = self._ordered
        inside = pages[bisect_right(pages, start - _PAGE) : bisect_left(pages, end)]
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
    owners = _owners(snapshot, _Pages(len(snapshot.events)))
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
    own: dict[_Owner, set[int]] = {}
    for page in mapped:
        own.setdefault(owners[page], set()).add(page)
    reached = _reached(own, snapshot)
    known = sorted({*owners, *(part.address for part in snapshot.segments)})
    extents = []
    for stream, is_small in sorted(own):
        pages = reached[stream, is_small]
        base, last = min(pages), max(pages)
        # It cannot reach into what is known to be another one's.
        behind = bisect_right(known, last)
        size = min(_MOST_ADDRESS_SPACE, known[behind] - base) if behind < len(known) else _MOST_ADDRESS_SPACE
        extents.append(Extent(base, size, stream, is_small, frozenset(own[stream, is_small])))
    return extents


_Owner = tuple[int, bool]
"""Stream, and whether it is the pool of small blocks."""


class _Pages:
    """Counts the pages that a recording moves."""

    def __init__(self, events: int) -> None:
        self._left = _PAGES_MOVED + _PAGES_AN_EVENT * events

    def move(self, address: int, size: int) -> range:
        pages = _pages(address, size)
        self._left -= len(pages)
        if self._left < 0:
            raise Inconsistent("it maps and unmaps more memory than can be followed")
        return pages

    def keep(self, count: int) -> None:
        if count > _MOST_PAGES:
            raise Inconsistent("it maps more memory than any device has")


def _reached(start: dict[_Owner, set[int]], snapshot: Snapshot) -> dict[_Owner, set[int]]:
    """All pages each segment had before it was all unmapped: then torch drops it, and the next one begins elsewhere."""
    reached = {owner: set(pages) for owner, pages in start.items()}
    held = {owner: len(pages) for owner, pages in start.items()}
    holder = {page: owner for owner, pages in start.items() for page in pages}
    for event in snapshot.events:
        if event.action == "segment_map":
            owner = (event.stream, event.size == _PAGE)
            if held.get(owner):
                pages = _pages(event.address, event.size)
                reached[owner].update(pages)
                held[owner] += len(pages)
                holder.update(dict.fromkeys(pages, owner))
        elif event.action == "segment_unmap":
            for page in _pages(event.address, event.size):
                if (left := holder.pop(page, None)) is not None:
                    held[left] -= 1
    return reached


def _owners(snapshot: Snapshot, count: _Pages) -> dict[int, _Owner]:
    """Every page that ever had memory → whose it is."""
    owners: dict[int, _Owner] = {}
    for segment in snapshot.segments:
        if segment.is_expandable:
            pages = count.move(segment.address, segment.size)
            owners.update(dict.fromkeys(pages, (segment.stream, segment.is_small)))
            count.keep(len(owners))
    used: dict[int, bool] = {}
    for event in snapshot.events:
        if event.action == "segment_map":
            # A small request never needs more than one page, and a large one's pages are larger.
            owner = (event.stream, event.size == _PAGE)
            owners.update(dict.fromkeys(count.move(event.address, event.size), owner))
            count.keep(len(owners))
        elif event.action in ("alloc", "free_completed"):
            used[event.address // _PAGE * _PAGE] = snapshot.settings.round_size(event.size) <= SMALL_REQUEST
    nearby = _Nearby(owners)
    for event in snapshot.events:
        if event.action == "segment_unmap":
            pages = count.move(event.address, event.size)
            is_small = _known_pool(pages, owners, used)
            if is_small is None and event.size % snapshot.settings.large_segment_size:
                is_small = True
            if is_small is None:
                is_small = nearby.is_small(event)
            new = [page for page in pages if page not in owners]
            owners.update(dict.fromkeys(new, (event.stream, is_small)))
            nearby.add(event.stream, new)
            count.keep(len(owners))
    return owners


def _known_pool(pages: range, owners: dict[int, _Owner], used: dict[int, bool]) -> bool | None:
    """Whether unmapped pages were the small pool's, by what is known of the first of them that anything is known of."""
    for page in pages:
        if page in owners:
            return owners[page][1]
        if page in used:
            return used[page]
    return None


class _Nearby:
    """Whose memory lies near an address: the pages of each stream, in order."""

    def __init__(self, owners: dict[int, _Owner]) -> None:
        self._owners = owners
        self._of_stream: dict[int, list[int]] = {}
        for page in sorted(owners):
            self._of_stream.setdefault(owners[page][0], []).append(page)

    def add(self, stream: int, pages: list[int]) -> None:
        if not pages:
            return
        known = self._of_stream.setdefault(stream, [])
        place = bisect_left(known, pages[0])
        known[place:place] = pages
        if place + len(pages) < len(known) and known[place + len(pages)] < pages[-1]:
            known.sort()

    def is_small(self, unmapped: RecordedEvent) -> bool:
        """Whether the nearest page of the stream is the small pool's; what is too far away tells nothing."""
        known = self._of_stream.get(unmapped.stream, [])
        place = bisect_left(known, unmapped.address)
        near = [page for page in known[max(place - 1, 0) : place + 1] if abs(page - unmapped.address) < _NEAR]
        return bool(near) and self._owners[min(near, key=lambda page: abs(page - unmapped.address))][1]


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
