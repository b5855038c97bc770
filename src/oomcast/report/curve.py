"""A job's memory over time, small enough to draw.

`curve_of` cuts the job's events into columns: one for each event around the peak, elsewhere one for a stretch of
events, at its highest moment. `bands_of` turns the columns into bands that lie on each other, from the CUDA context up
to what the allocator keeps beside the tensors: together they are as high as what the device shows.
"""

from __future__ import annotations

import heapq
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..estimation import Estimate
from ..simulate import Action, ActionKind, History
from ..trace import Category

__all__ = [
    "BOTTOM_UP",
    "CATEGORIES",
    "OF_BLOCKS",
    "Band",
    "Bands",
    "Column",
    "Curve",
    "Stretch",
    "bands_of",
    "curve_of",
    "parts_of",
]

CATEGORIES = tuple(category.value for category in Category)
_COLUMNS = 2400
"""About as many as are drawn; a run with fewer events is drawn event by event."""
_EXACT = 400
"""Events on each side of the peak that have a column of their own."""
OF_BLOCKS = (ActionKind.ALLOCATE, ActionKind.FREE)
"""What changes the tensors in use; the others are about segments."""
_NO_MORE: tuple[int, Iterator[Action]] = (-1, iter(()))


@dataclass(frozen=True, slots=True)
class Column:
    """A stretch of events, after that of them which left the most bytes allocated."""

    first: int
    """Number of its first event; it ends where the next column starts."""
    moment: int
    """The event of the highest moment."""
    bytes: tuple[int, ...]
    """By category, in the order of `CATEGORIES`."""
    reserved: int
    """The highest reserved bytes of the stretch."""
    largest: tuple[Action | None, ...]
    """By category: the largest block in use."""
    action: Action | None
    """What happened at the moment; None where no block was taken or given back in the whole stretch."""
    changes: int
    """How many blocks had been taken or given back by the moment, from the start of the run on."""

    @property
    def allocated(self) -> int:
        return sum(self.bytes)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A phase of a step, from event `first` up to, not including, `end`."""

    phase: str
    step: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Curve:
    columns: tuple[Column, ...]
    stretches: tuple[Stretch, ...]
    """Those in which something happened."""
    end: int
    """Number of events."""
    peak: int
    """Index of the column of the highest allocated bytes."""
    is_exact: bool
    """Every event has its own column."""


def curve_of(history: History, columns: int = _COLUMNS, exact: int = _EXACT) -> Curve:
    end = len(history.trace.events)
    stretches = tuple(Stretch(s.phase.value, s.step, s.first, s.end) for s in history.spans if s.end > s.first)
    peak = history.peak()
    starts = _starts(stretches, end, history.actions[peak].position if peak >= 0 else 0, columns, exact)
    drawn = tuple(_columns(history, starts))
    highest = max(range(len(drawn)), key=lambda number: drawn[number].allocated, default=0)
    return Curve(drawn, stretches, end, highest, len(drawn) == end)


def _starts(stretches: Sequence[Stretch], end: int, peak: int, columns: int, exact: int) -> list[int]:
    """First events of the columns: no column reaches over the start of a phase."""
    if end <= columns:
        return list(range(end))
    width = -(-end // max(columns - 2 * exact, 1))
    starts = set(range(max(peak - exact, 0), min(peak + exact + 1, end)))
    for stretch in stretches:
        starts.update(range(stretch.first, stretch.end, width))
    # What follows the last exact event begins a column of its own.
    starts.add(min(peak + exact + 1, end - 1))
    return sorted(starts | {0})


def _columns(history: History, starts: Sequence[int]) -> Iterator[Column]:
    live = _Live(history)
    reserved = 0
    groups = itertools.groupby(history.actions, key=lambda action: bisect_right(starts, action.position) - 1)
    number, actions = next(groups, _NO_MORE)
    for index, first in enumerate(starts):
        if index != number:
            yield live.column(first, first, reserved, None)
            continue
        highest: Column | None = None
        top_reserved = reserved
        for action in actions:
            live.apply(action)
            reserved = action.reserved
            top_reserved = max(top_reserved, reserved)
            if action.kind in OF_BLOCKS and (highest is None or live.allocated > highest.allocated):
                highest = live.column(first, action.position, reserved, action)
        yield replace(highest or live.column(first, first, reserved, None), reserved=top_reserved)
        number, actions = next(groups, _NO_MORE)


class _Live:
    """What is in use, by category, with the largest block of each at hand."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._bytes = dict.fromkeys(CATEGORIES, 0)
        self._blocks: dict[int, int] = {}
        """Address → number of the action that took it."""
        self._heaps: dict[str, list[tuple[int, int, Action]]] = {name: [] for name in CATEGORIES}
        self._count = 0
        self.allocated = 0

    def apply(self, action: Action) -> None:
        if action.kind not in OF_BLOCKS:
            return
        category = self._history.category_of(action).value
        self._count += 1
        if action.kind is ActionKind.ALLOCATE:
            self._blocks[action.address] = self._count
            heapq.heappush(self._heaps[category], (-action.size, self._count, action))
            change = action.size
        else:
            del self._blocks[action.address]
            change = -action.size
        self._bytes[category] += change
        self.allocated += change

    def column(self, first: int, moment: int, reserved: int, action: Action | None) -> Column:
        largest = tuple(self._largest(name) for name in CATEGORIES)
        return Column(first, moment, tuple(self._bytes.values()), reserved, largest, action, self._count)

    def _largest(self, category: str) -> Action | None:
        heap = self._heaps[category]
        while heap and self._blocks.get(heap[0][2].address) != heap[0][1]:
            heapq.heappop(heap)
        return heap[0][2] if heap else None


BOTTOM_UP = (
    "context",
    "communication",
    "calibrated",
    "parameter",
    "buffer",
    "optimizer_state",
    "gradient",
    "input",
    "activation",
    "temporary",
    "workspace",
    "allocator_cache",
)
"""What lasts lies below what comes and goes."""


@dataclass(frozen=True, slots=True)
class Band:
    part: str
    values: Sequence[int]
    """Bytes, one for each column of the curve."""
    tops: Sequence[int]
    """The same with all that lies below it."""


@dataclass(frozen=True, slots=True)
class Bands:
    """All bands of a job, without those that are never there."""

    bottom_up: tuple[Band, ...]
    top: int
    """The highest of all."""


def bands_of(estimate: Estimate, curve: Curve) -> Bands:
    """What the simulation does not see (context, calibration) is the same all the time."""
    columns, breakdown = curve.columns, estimate.breakdown
    context, calibrated = breakdown.get("context", 0), breakdown.get("calibrated", 0)
    peak_allocated = max((column.allocated for column in columns), default=0)
    reserved = peak_allocated + calibrated + breakdown.get("allocator_cache", 0)
    missed = reserved - max((column.reserved for column in columns), default=0)
    values = {
        "context": [context] * len(columns),
        "communication": [breakdown.get("communication", 0)] * len(columns),
        "calibrated": [calibrated] * len(columns),
        **{name: [column.bytes[place] for column in columns] for place, name in enumerate(CATEGORIES)},
        "allocator_cache": [max(c.reserved + missed - c.allocated - calibrated, 0) for c in columns],
    }
    layers = []
    tops = [0] * len(columns)
    for part in BOTTOM_UP:
        if any(values[part]):
            tops = [below + value for below, value in zip(tops, values[part], strict=True)]
            layers.append(Band(part, values[part], tops))
    return Bands(tuple(layers), max(tops, default=0))


def parts_of(estimate: Estimate) -> list[tuple[str, int]]:
    """The parts of the breakdown that are there, in the order of the bands, then those that have no band."""
    order = {part: place for place, part in enumerate(BOTTOM_UP)}
    present = [(part, nbytes) for part, nbytes in estimate.breakdown.items() if nbytes]
    return sorted(present, key=lambda item: order.get(item[0], len(order)))
