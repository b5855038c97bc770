"""Conformal bounds for data that come in groups, honest for a group never seen.

Rows of one group resemble each other, so the plain quantile of all rows promises too much for a new group. Here every
group counts the same, its rows share its weight, and one more group stands at infinity for the one to come: a new row
of a new group then lies below the bound with at least the asked probability, whatever the distribution, if groups are
exchangeable (Lee, Barber and Willett, Distribution-free inference with hierarchical data, 2023, arXiv:2306.06342).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

__all__ = ["GroupCoverage", "group_quantile", "group_range", "leave_group_out"]

_TOLERANCE = 1e-12


@dataclass(frozen=True)
class GroupCoverage:
    """How a bound does on groups that it was not made from."""

    rows: int
    groups: int
    covered: float
    """The share of rows within the bound."""
    covered_by_group: float
    """The same with every group counting once: what the bound promises."""
    bounds: tuple[float, ...]
    """The bound that each row was judged by, in the rows' order."""


def group_quantile(scores: Sequence[float], groups: Sequence[Hashable], level: float) -> float:
    """The one-sided bound: a new row of a new group is at most this with probability `level`.

    Infinite where there are too few groups to promise it: `level` needs at least `level / (1 - level)` of them.
    """
    _check(scores, groups, level)
    sizes = Counter(groups)
    share = 1 / (len(sizes) + 1)
    reached = 0.0
    for score, group in sorted(zip(scores, groups, strict=True), key=lambda pair: pair[0]):
        reached += share / sizes[group]
        if reached >= level - _TOLERANCE:
            return score
    return math.inf


def group_range(scores: Sequence[float], groups: Sequence[Hashable], level: float) -> tuple[float, float]:
    """The two-sided bound, with the same chance of leaving it on either side."""
    _check(scores, groups, level)
    side = 1 - (1 - level) / 2
    return -group_quantile([-score for score in scores], groups, side), group_quantile(scores, groups, side)


def leave_group_out(scores: Sequence[float], groups: Sequence[Hashable], level: float) -> GroupCoverage:
    """Judge each group by the one-sided bound made from all the others."""
    _check(scores, groups, level)
    bounds: dict[Hashable, float] = {}
    for group in dict.fromkeys(groups):
        others = [index for index, other in enumerate(groups) if other != group]
        bounds[group] = (
            group_quantile([scores[i] for i in others], [groups[i] for i in others], level) if others else math.inf
        )
    within = [score <= bounds[group] for score, group in zip(scores, groups, strict=True)]
    sizes = Counter(groups)
    by_group = sum(inside / sizes[group] for inside, group in zip(within, groups, strict=True)) / len(sizes)
    return GroupCoverage(
        rows=len(scores),
        groups=len(sizes),
        covered=sum(within) / len(within),
        covered_by_group=by_group,
        bounds=tuple(bounds[group] for group in groups),
    )


def _check(scores: Sequence[float], groups: Sequence[Hashable], level: float) -> None:
    if len(scores) != len(groups):
        raise ValueError(f"{len(scores)} scores for {len(groups)} groups")
    if not scores:
        raise ValueError("no scores")
    if not 0 < level < 1:
        raise ValueError(f"a level lies between 0 and 1, not {level}")
    if _any_nan(scores):
        raise ValueError("a score is not a number")


def _any_nan(scores: Iterable[float]) -> bool:
    return any(math.isnan(score) for score in scores)
