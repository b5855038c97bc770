"""The tensors of a job one by one: when each was taken and given back, and the bands in which they lie on each other.

A band is one tensor, or small ones together: those that could not be seen even on a chart of their category alone are
put with their equals (of the same category, size, shape and operator, whichever module they are of), and what is then
still too thin is one band for its category. At each column of the curve the bands of a category are together as high as
that category is there.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..simulate import Action, ActionKind, History
from .curve import BOTTOM_UP, CATEGORIES, OF_BLOCKS, Curve

__all__ = ["Life", "TensorBand", "TensorBands", "lives_of", "tensor_bands"]

_LEAST_SHARE = 1 / 1000
"""Of the most that its category holds: a thinner band would be less than half a pixel."""
_MOST_ALONE = 900
"""Tensors of a category with a band of their own: what bounds the page of a long run."""


@dataclass(frozen=True, slots=True)
class Life:
    """A block from the action that took it to the one that gave it back."""

    action: Action
    """The one that took it."""
    died: int | None
    """The event that gave it back; None if it is held to the end."""
    first: int
    """Index of the first column at whose moment it is in use."""
    last: int
    """Of the last such column. Before `first` where the block came and went between two moments."""

    @property
    def born(self) -> int:
        return self.action.position

    @property
    def is_seen(self) -> bool:
        return self.last >= self.first


@dataclass(frozen=True, slots=True)
class TensorBand:
    part: str
    lives: tuple[Life, ...]
    """One, or those that are put together."""
    kind: int
    """The same number for bands whose tensors are equal; 0 where different ones are put together."""

    def steps(self) -> list[tuple[int, int]]:
        """The columns from which on its height is another, with the bytes from there on."""
        changes: dict[int, int] = defaultdict(int)
        for life in self.lives:
            changes[life.first] += life.action.size
            changes[life.last + 1] -= life.action.size
        steps, level = [], 0
        for column in sorted(changes):
            if changes[column]:
                level += changes[column]
                steps.append((column, level))
        return steps


@dataclass(frozen=True, slots=True)
class TensorBands:
    bottom_up: tuple[TensorBand, ...]
    """In the order of the categories' bands; within a category in that of birth, what is put together on top."""
    unseen: int
    """Tensors that came and went between the moments that are drawn."""
    least: dict[str, int]
    """Bytes, by category: smaller tensors are put together."""


def lives_of(history: History, curve: Curve) -> list[Life]:
    """Of every block, in the order in which they were taken."""
    moments = [column.changes for column in curve.columns]
    # By address: the number of the change that took the block, and its place in the order.
    taken: dict[int, tuple[int, int]] = {}
    found: list[tuple[Action, int | None, int, int]] = []
    changes = (action for action in history.actions if action.kind in OF_BLOCKS)
    for number, action in enumerate(changes, start=1):
        if action.kind is ActionKind.ALLOCATE:
            taken[action.address] = (number, len(found))
            found.append((action, None, bisect_left(moments, number), len(moments) - 1))
        else:
            start, place = taken.pop(action.address)
            last = bisect_right(moments, number - 1) - 1
            found[place] = (found[place][0], action.position, bisect_left(moments, start), last)
    return [Life(*one) for one in found]


def tensor_bands(history: History, curve: Curve, most_alone: int = _MOST_ALONE) -> TensorBands:
    lives = lives_of(history, curve)
    seen = [life for life in lives if life.is_seen]
    kinds = _Kinds(history)
    sizes: dict[str, list[int]] = {part: [] for part in CATEGORIES}
    for life in seen:
        sizes[kinds.part(life)].append(life.action.size)
    highest = [max((column.bytes[place] for column in curve.columns), default=0) for place in range(len(CATEGORIES))]
    least = {
        part: _least(sizes[part], math.ceil(most * _LEAST_SHARE), most_alone)
        for part, most in zip(CATEGORIES, highest, strict=True)
    }
    alone, small = [], []
    for life in seen:
        part = kinds.part(life)
        if life.action.size >= least[part]:
            alone.append(TensorBand(part, (life,), kinds.number(life)))
        else:
            small.append(life)
    together = _together(kinds, small, least)
    order = {part: place for place, part in enumerate(BOTTOM_UP)}
    # Python's sort keeps the order of birth.
    bands = sorted([*alone, *together], key=lambda band: order[band.part])
    return TensorBands(tuple(bands), len(lives) - len(seen), least)


def _least(sizes: Sequence[int], least: int, most_alone: int) -> int:
    """Raised where too many would stand alone; equal tensors are all alone or all together."""
    return max(least, sorted(sizes, reverse=True)[most_alone] + 1) if len(sizes) > most_alone else least


def _together(kinds: _Kinds, small: Iterable[Life], least: Mapping[str, int]) -> list[TensorBand]:
    equal: dict[int, list[Life]] = defaultdict(list)
    for life in small:
        equal[kinds.number(life)].append(life)
    bands: list[TensorBand] = []
    rest: dict[str, list[Life]] = defaultdict(list)
    for kind, lives in equal.items():
        band = TensorBand(kinds.part(lives[0]), tuple(lives), kind)
        if max(level for _, level in band.steps()) >= least[band.part]:
            bands.append(band)
        else:
            rest[band.part] += lives
    return bands + [TensorBand(part, tuple(lives), 0) for part, lives in rest.items()]


class _Kinds:
    """Numbers, from 1 on, that equal tensors share."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._numbers: dict[Hashable, int] = {}

    def part(self, life: Life) -> str:
        return self._history.category_of(life.action).value

    def number(self, life: Life) -> int:
        action = life.action
        same: tuple[Hashable, ...] = (self.part(life), action.size, action.name)
        if action.allocation is not None:
            made = self._history.trace.allocations[action.allocation]
            same += (made.shape, made.dtype)
        return self._numbers.setdefault(same, len(self._numbers) + 1)
