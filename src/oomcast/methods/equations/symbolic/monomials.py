"""Sparse sums of products of powers with positive constants: for each number of terms, the best that is found.

Every expression of additions, multiplications, squares and cubes is such a sum, so looking among them is looking among
the same equations, without the many trees that stand for one. The relative error is made small: each row is divided by
its response. A sum in which least squares gives a term a constant that is not positive is never the best of its length
(without the term it is as good), so only the others are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Candidates", "Subset", "all_powers", "best_subsets"]

Floats: TypeAlias = NDArray[np.float64]
Subset: TypeAlias = tuple[int, ...]

_BEAM = 12
_EXACT = 1e-14
"""Sums of squares below this share of the whole are rounding."""
_SAME = 1e-10
"""A column of which less than this is left without the others tells nothing new."""
_BETTER = 1e-9
_PER_DEGREE = 0.5
"""High powers fit a few rows by chance and are far off between them."""


@dataclass(frozen=True)
class Candidates:
    """Products of powers at each row, divided by the response, in columns of length 1; `scale` undoes that."""

    powers: tuple[tuple[int, ...], ...]
    columns: Floats
    scale: Floats
    prices: Floats
    """What a term of this product must earn, in nats: for one choice among all, and more the higher its degree."""

    @classmethod
    def of(cls, x: Floats, y: Floats, powers: Sequence[tuple[int, ...]]) -> Candidates:
        columns = np.column_stack([np.prod(x ** np.array(exponents), axis=1) / y for exponents in powers])
        scale = np.sqrt((columns**2).sum(axis=0))
        prices = math.log(len(powers)) + _PER_DEGREE * np.array([sum(exponents) for exponents in powers])
        return cls(tuple(powers), columns / scale, scale, prices)


def all_powers(x: Floats, max_degree: int, most: int) -> list[tuple[int, ...]]:
    """All exponents up to a degree, lower if there would be too many; a variable of m values carries powers below m."""
    width = x.shape[1]
    degree = max_degree
    while degree > 1 and math.comb(width + degree, degree) > most:
        degree -= 1
    bounds = [min(len(np.unique(column)) - 1, degree) for column in x.T]
    return [powers for total in range(degree + 1) for powers in _splits(total, bounds)]


def _splits(total: int, bounds: Sequence[int]) -> Iterable[tuple[int, ...]]:
    if not bounds:
        if total == 0:
            yield ()
        return
    for first in range(min(total, bounds[0]), -1, -1):
        for rest in _splits(total - first, bounds[1:]):
            yield (first, *rest)


def best_subsets(
    columns: Floats, target: Floats, prices: Floats, most: int, signed: bool = False
) -> Iterator[tuple[Subset, float]]:
    """For 1, 2, ... terms the columns whose sum, with positive factors, is nearest to the target; its sum of squares.

    A price, in nats, must be earned by a nearer sum. Grown from the best shorter ones, then terms are exchanged one by
    one while that helps. It ends where a further term does not help. With `signed`, factors may be negative.
    """
    search = _Extension(columns, target, prices, signed)
    kept: dict[Subset, float] = {(): search.whole}
    last = math.inf
    for length in range(1, most + 1):
        kept, tried = search.best(set(kept)), set(kept)
        for _ in range(length):
            shorter = {one[:place] + one[place + 1 :] for one in kept for place in range(length)} - tried
            if not shorter:
                break
            tried |= shorter
            kept = _first({**kept, **search.best(shorter)})
        if not kept:
            return
        subset, priced = next(iter(kept.items()))
        loss = priced / float(search.markup[list(subset)].prod())
        if loss >= last * (1 - _BETTER):
            return
        yield subset, loss
        if loss <= _EXACT * search.whole * 2:
            return
        last = loss


def _first(losses: dict[Subset, float]) -> dict[Subset, float]:
    return dict(sorted(losses.items(), key=lambda item: (item[1], item[0]))[:_BEAM])


class _Extension:
    """Sums of squares of subsets with one more column, many at once, from sums of products; prices multiply them."""

    def __init__(self, columns: Floats, target: Floats, prices: Floats, signed: bool) -> None:
        self.gram, self.target, self.whole = columns.T @ columns, columns.T @ target, float(target @ target)
        self.markup, self.signed = np.exp(2 * prices / len(columns)), signed

    def best(self, subsets: set[Subset]) -> dict[Subset, float]:
        """Of all subsets with one more column, those of the least sum of squares."""
        bases = np.array(sorted(subsets), dtype=np.int64).reshape(len(subsets), -1)
        losses = self._losses(bases)
        misfits: dict[Subset, float] = {}
        # A subset can be reached from as many shorter ones as it has columns.
        most = min(losses.size, _BEAM * (bases.shape[1] + 1))
        for place in np.argpartition(losses, most - 1, axis=None)[:most]:
            base, column = divmod(int(place), losses.shape[1])
            if math.isfinite(loss := float(losses[base, column])):
                misfits[tuple(sorted((*map(int, bases[base]), column)))] = loss
        return _first(misfits)

    def _losses(self, bases: NDArray[np.int64]) -> Floats:
        """For each base and each column; infinite where the column tells nothing new or a factor is not positive."""
        gram, target, own = self.gram, self.target, np.diag(self.gram)
        cross, wanted = gram[bases], target[bases]
        solved = np.linalg.solve(gram[bases[:, :, None], bases[:, None, :]], np.dstack([wanted, cross]))
        mixed = solved[:, :, 1:]
        free = own - (cross * mixed).sum(axis=1)
        new = free > _SAME * own
        np.put_along_axis(new, bases, False, axis=1)
        free = np.where(new, free, 1.0)
        factor = (target - (cross * solved[:, :, :1]).sum(axis=1)) / free
        if not self.signed:
            new &= (factor > 0) & (solved[:, :, :1] > mixed * factor[:, None, :]).all(axis=1)
        before = self.whole - (wanted * solved[:, :, 0]).sum(axis=1)
        after = np.maximum(before[:, None] - factor**2 * free, _EXACT * self.whole)
        losses: Floats = np.where(new, after * self.markup[bases].prod(axis=1)[:, None] * self.markup, np.inf)
        return losses
