"""Arrays of strength 2, of any levels: which factors fit into n runs, and how.

A column of q levels is itself room for a whole array of q runs (expansive replacement: 4 levels hold three factors of
two), and a factor may stand in a column of more levels if it divides them. So a construction offers columns as bins,
the factors are packed into them, largest first, and each bin is an array of its own, packed the same way.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TypeAlias

import numpy as np

from .algebra import Ints, hadamard, has_hadamard, prime_powers
from .schemes import Scheme, divisors, scheme, six_level_shifts, stored_array

__all__ = ["fewest_runs", "pack"]

Levels: TypeAlias = tuple[int, ...]
Recipe: TypeAlias = Callable[[], Ints]


def fewest_runs(levels: Levels) -> tuple[int, int]:
    """The step and the least number of runs that counting allows: every pair even, and Rao's bound."""
    pairs = [a * b for a, b in itertools.combinations(levels, 2)]
    step = math.lcm(*levels, *pairs)
    return step, step * -(-(1 + sum(level - 1 for level in levels)) // step)


@cache
def pack(runs: int, levels: Levels) -> Recipe | None:
    """How to make an array of that many runs with these levels, given in falling order; None if no way is known."""
    if not levels:
        return lambda: np.zeros((runs, 0), dtype=np.int64)
    step, least = fewest_runs(levels)
    if runs % step or runs < least:
        return None
    for way in (_factorial, _two_levels, _stored, _developed, _six_levels, _crossed):
        if recipe := way(runs, levels):
            return recipe
    return None


def _factorial(runs: int, levels: Levels) -> Recipe | None:
    """Every combination, repeated."""
    cells = math.prod(levels)
    if runs % cells:
        return None
    return lambda: np.tile(np.array(list(itertools.product(*map(range, levels))), dtype=np.int64), (runs // cells, 1))


def _two_levels(runs: int, levels: Levels) -> Recipe | None:
    if set(levels) != {2} or len(levels) >= runs or not has_hadamard(runs):
        return None
    return lambda: hadamard(runs)[:, 1 : len(levels) + 1]


def _stored(runs: int, levels: Levels) -> Recipe | None:
    stored = stored_array(runs)
    if stored is None or Counter(levels) - Counter(stored[0]):
        return None
    have, rows = stored
    # Columns of one size are alike: take the first ones of each.
    places = [have.index(level) + levels[:factor].count(level) for factor, level in enumerate(levels)]
    return lambda: rows[:, places]


def _developed(runs: int, levels: Levels) -> Recipe | None:
    """Through a difference scheme: its columns as bins of g runs, its row number as a bin of r runs."""
    for group in reversed(divisors(runs)):
        differences = scheme(runs // group, group)
        if differences is None:
            continue
        for rows_first in (False, True):
            if recipe := _through(differences, runs // group, group, levels, rows_first):
                return recipe
    return None


def _through(differences: Scheme, rows: int, group: int, levels: Levels, rows_first: bool) -> Recipe | None:
    everything = list(range(len(levels)))
    in_rows: list[int] = []
    if rows_first:
        (in_rows, *_), everything = _fill(rows, 1, levels, everything)
    bins, left = _fill(group, differences.columns, levels, everything)
    in_rows = in_rows + left
    row_recipe = pack(rows, _at(levels, sorted(in_rows)))
    if row_recipe is None:
        return None

    def make() -> Ints:
        matrix, add = differences.matrix(), differences.add()
        array = np.empty((rows, group, len(levels)), dtype=np.int64)
        array[:, :, sorted(in_rows)] = row_recipe()[:, None, :]
        for column, inside in zip(matrix.T, bins, strict=False):
            array[:, :, inside] = _made(group, _at(levels, inside))[add[column]]
        return array.reshape(rows * group, -1)

    return make


def _six_levels(runs: int, levels: Levels) -> Recipe | None:
    """12 or 24 rows of a Hadamard matrix times the plane over GF(3).

    Column j is the pair of the matrix's column j and of s·(x, y) + shift, where s is one of the four directions of the
    plane. Columns of two directions are even in each row; those of one direction by the choice of the shifts.
    """
    stored = six_level_shifts(runs // 9) if runs % 9 == 0 else None
    if stored is None:
        return None
    class_size, shifts = stored
    bins, left = _fill(6, shifts.shape[1], levels, list(range(len(levels))))
    if left:
        return None

    def make() -> Ints:
        signs = hadamard(runs // 9)[:, 1:]
        x, y = np.divmod(np.arange(9), 3)
        directions = (x, y, x + y, x + 2 * y)
        array = np.empty((runs // 9, 9, len(levels)), dtype=np.int64)
        for j, inside in enumerate(bins):
            three = (directions[j // class_size][None, :] + shifts[:, j, None]) % 3
            array[:, :, inside] = _made(6, _at(levels, inside))[3 * signs[:, j, None] + three]
        return array.reshape(runs, -1)

    return make


def _crossed(runs: int, levels: Levels) -> Recipe | None:
    """Every row of one array with every row of another, each with the part of the levels that its primes make."""
    primes = sorted(prime_powers(math.prod(levels)))
    for size in range(1, len(primes)):
        for chosen in itertools.combinations(primes[1:], size):
            one = [math.prod(p**e for p, e in prime_powers(level).items() if p in chosen) for level in levels]
            two = [level // part for level, part in zip(levels, one, strict=True)]
            for count in divisors(runs):
                if _fits(count, one) and _fits(runs // count, two):
                    return partial(_product, count, one, runs // count, two)
    return None


def _product(count: int, one: list[int], other: int, two: list[int]) -> Ints:
    first, second = _spread(count, one), _spread(other, two)
    array: Ints = first[:, None, :] * np.array(two) + second[None, :, :]
    return array.reshape(count * other, -1)


def _fits(runs: int, parts: list[int]) -> bool:
    return pack(runs, tuple(sorted((part for part in parts if part > 1), reverse=True))) is not None


def _spread(runs: int, parts: list[int]) -> Ints:
    """The array for parts in any order, with a constant column for a part of 1."""
    order = sorted((i for i, part in enumerate(parts) if part > 1), key=lambda i: -parts[i])
    array = np.zeros((runs, len(parts)), dtype=np.int64)
    array[:, order] = _made(runs, _at(parts, order))
    return array


def _fill(size: int, count: int, levels: Levels, wanted: list[int]) -> tuple[list[list[int]], list[int]]:
    """First fit into at most `count` bins of `size` runs; also what found no place."""
    bins: list[list[int]] = []
    left: list[int] = []
    for factor in wanted:
        for inside in bins:
            if pack(size, _at(levels, [*inside, factor])) is not None:
                inside.append(factor)
                break
        else:
            if len(bins) < count and size % levels[factor] == 0:
                bins.append([factor])
            else:
                left.append(factor)
    return bins or [[]], left


def _made(runs: int, levels: Levels) -> Ints:
    recipe = pack(runs, levels)
    assert recipe is not None
    return recipe()


def _at(levels: Sequence[int], places: Sequence[int]) -> Levels:
    return tuple(levels[place] for place in places)
