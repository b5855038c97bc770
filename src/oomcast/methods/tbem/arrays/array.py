"""An orthogonal array, and the check that it is one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["OrthogonalArray", "strength_of"]


@dataclass(frozen=True)
class OrthogonalArray:
    """Rows of level numbers; in any `strength` columns every combination of levels appears equally often.

    An array whose rows do not have that strength cannot be made: the check runs over all sets of columns.
    """

    levels: tuple[int, ...]
    strength: int
    rows: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        reached = strength_of(self.rows, self.levels, self.strength)
        if reached < self.strength:
            raise ValueError(f"an array said to have strength {self.strength} has strength {reached}")

    @property
    def runs(self) -> int:
        return len(self.rows)

    @property
    def notation(self) -> str:
        """As the TBEM papers write it: `OA(16, 3, 4, 2) = L16(4³)`; mixed levels as `4⁴·2³`."""
        many = [(level, self.levels.count(level)) for level in sorted(set(self.levels), reverse=True)]
        powers = "·".join(f"{level}{str(count).translate(_SUPERSCRIPT)}" for level, count in many)
        levels = str(many[0][0]) if len(many) == 1 else powers
        return f"OA({self.runs}, {len(self.levels)}, {levels}, {self.strength}) = L{self.runs}({powers})"


_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def strength_of(rows: ArrayLike, levels: Sequence[int], limit: int | None = None) -> int:
    """The largest s for which any s columns hold every combination of levels equally often; at most `limit`.

    No more than the number of columns; 0 where even a single column is not balanced.
    """
    array = np.asarray(rows, dtype=np.int64).reshape(-1, len(levels))
    if len(array) == 0 or (array < 0).any() or (array >= np.asarray(levels)).any():
        return 0
    top = len(levels) if limit is None else min(limit, len(levels))
    for strength in range(1, top + 1):
        for columns in itertools.combinations(range(len(levels)), strength):
            if not _balanced(array[:, columns], [levels[column] for column in columns]):
                return strength - 1
    return top


def _balanced(columns: np.ndarray, levels: Sequence[int]) -> bool:
    cells = math.prod(levels)
    if len(columns) % cells:
        return False
    cell = np.ravel_multi_index(tuple(columns.T), tuple(levels))
    return bool((np.bincount(cell, minlength=cells) == len(columns) // cells).all())
