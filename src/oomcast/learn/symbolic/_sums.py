"""From samples to sums of products: the best sums of 1, 2, ... terms, and how far each is to be trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._expression import Floats
from ._monomials import Candidates, best_subsets

__all__ = ["SumOfProducts", "best_sums", "criterion"]

_EXACT = 1e-14
_PATIENCE = 3
_ROUNDS = 5
_SETTLED = 0.05
_HUBER = 1.345
_NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute value."""
_ROUNDING = 1e-7


@dataclass(frozen=True)
class SumOfProducts:
    """Exponents and a factor for each term; the lower the criterion, the more the sum is to be trusted."""

    powers: tuple[tuple[int, ...], ...]
    factors: tuple[float, ...]
    criterion: float


def criterion(rows: int, misfit: float, constants: int, choices: float) -> float:
    """The extended Bayesian information criterion of a sum of squared relative errors.

    `choices` is the logarithm of how many forms there were to choose from: a form must fit better than chance would
    among so many.
    """
    return rows * math.log(max(misfit / rows, _EXACT)) + constants * math.log(rows) + 2 * choices


def best_sums(
    x: Floats, y: Floats, powers: Sequence[tuple[int, ...]], most: int, signed: bool = False
) -> list[SumOfProducts]:
    """For 1, 2, ... terms the best sum that is found, until several in a row are to be trusted less.

    Rows far from the sum that is to be trusted most get smaller weights (Huber's), and the search is done again: one
    odd row shall not decide which terms there are.
    """
    candidates = Candidates.of(x, y, powers)
    weights = np.ones(len(y))
    for _ in range(_ROUNDS):
        found = _weighted(candidates, weights, most, signed)
        best = min(found, key=lambda one: one.criterion)
        places = [candidates.powers.index(powers) for powers in best.powers]
        errors = np.abs(candidates.columns[:, places] @ (best.factors * candidates.scale[places]) - 1)
        usual = _NORMAL * float(np.median(errors)) * math.sqrt(len(y) / max(1, len(y) - len(places)))
        after = np.minimum(1.0, _HUBER * usual / np.maximum(errors, _ROUNDING))
        if usual < _ROUNDING or np.abs(after - weights).max() < _SETTLED:
            break
        weights = after
    return found


def _weighted(candidates: Candidates, weights: Floats, most: int, signed: bool) -> list[SumOfProducts]:
    target = np.sqrt(weights)
    columns, rows = candidates.columns * target[:, None], len(target)
    found: list[SumOfProducts] = []
    for subset, misfit in best_subsets(columns, target, candidates.prices, most, signed):
        places = list(subset)
        factors, *_ = np.linalg.lstsq(columns[:, places], target, rcond=None)
        found.append(
            SumOfProducts(
                tuple(candidates.powers[place] for place in subset),
                tuple(float(factor) for factor in factors / candidates.scale[places]),
                criterion(
                    rows, misfit, len(subset), float(candidates.prices[places].sum()) - math.lgamma(len(subset) + 1)
                ),
            )
        )
        best = min(range(len(found)), key=lambda place: found[place].criterion)
        if len(found) - 1 - best >= _PATIENCE:
            break
    return found
