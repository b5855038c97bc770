"""What the bound on the risk says in linear terms, so that a solver can reason about it.

Three kinds of statements, over the jobs that share a card:

- weights that never exclude a placement that holds (`relaxation`): they make the proven bound;
- covers, sets of jobs that cannot share (`cover_cut`, `cardinality_cuts`): also never wrong;
- weights that are mostly right (`surrogate`): they lead to placements, each of which is then checked.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, product, takewhile

from ...units import MiB
from .demand import lower_equivalent, overflow_risk
from .problem import Placement, Problem

__all__ = [
    "Cut",
    "Weights",
    "cardinality_cuts",
    "cover_cut",
    "fewest_cards_needed",
    "most_jobs_possible",
    "relaxation",
    "surrogate",
]

_RATES = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
_MOST_SHARING = 12
_EXACT = 1e-9


@dataclass(frozen=True)
class Weights:
    """For a kind of card: the sum of `of` over its jobs is at most `limit`. Whole MiB."""

    kind: str
    of: tuple[int | None, ...]
    """By item; None where it may not run there."""
    limit: int


@dataclass(frozen=True)
class Cut:
    """At most `most` of these items share a card of that kind."""

    kind: str
    items: tuple[int, ...]
    most: int


def relaxation(problem: Problem, kind: str) -> tuple[Weights, ...]:
    """Chernoff weights at the rates that say most; see `lower_equivalent`."""
    usable = problem.usable(kind)
    together = _most_of_group(problem, kind)
    found = []
    for share in _RATES:
        rate = share / usable
        limit = math.ceil((usable - math.log1p(-problem.bound) / rate) / MiB)
        weights: list[int | None] = []
        for item in problem.items:
            demand = item.demands.get(kind)
            if demand is None:
                weights.append(None)
                continue
            # Jobs that err together: by Hölder's inequality the product of their terms, each at as many times the rate.
            weight = lower_equivalent(demand, rate * together[item.group])
            # A job that shares the card with no other goes by its own risk instead, which may be lower.
            weights.append(min(math.floor(weight / MiB), limit))
        found.append(Weights(kind, tuple(weights), limit))
    found.sort(key=lambda statement: -sum(weight or 0 for weight in statement.of) / statement.limit)
    return tuple(found[:2])


def fewest_cards_needed(problem: Problem, weights: Sequence[Weights], cuts: Sequence[Cut]) -> int:
    """By the weights' sum, or by the largest jobs, which share with few: without a search."""
    by_weight = max((math.ceil(sum(_shares(problem, chosen)) - _EXACT) for chosen in _each_kind(weights)), default=1)
    by_number = max((-(-len(cut.items) // cut.most) for cut in cuts if len(problem.kinds) == 1), default=1)
    return max(by_weight, by_number, 1)


def most_jobs_possible(problem: Problem, weights: Sequence[Weights]) -> int:
    """As many of those with the smallest weights as the cards hold, if jobs could be cut into pieces."""
    most = len(problem.items)
    for chosen in _each_kind(weights):
        filled = accumulate(sorted(_shares(problem, chosen)))
        most = min(most, sum(1 for _ in takewhile(lambda share: share <= len(problem.cards) + _EXACT, filled)))
    return most


def _each_kind(weights: Sequence[Weights]) -> list[tuple[Weights, ...]]:
    """One statement for every kind of card, in each combination."""
    kinds = dict.fromkeys(statement.kind for statement in weights)
    return list(product(*([statement for statement in weights if statement.kind == kind] for kind in kinds)))


def _shares(problem: Problem, weights: Sequence[Weights]) -> list[float]:
    """By item, the share of a card that it takes, on the kind where that is least."""
    return [
        min(
            weight / statement.limit for statement in weights for weight in [statement.of[number]] if weight is not None
        )
        for number in range(len(problem.items))
    ]


def _most_of_group(problem: Problem, kind: str) -> dict[str, int]:
    """How many jobs of each group can be on one card."""
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(problem.items):
        if kind in item.demands:
            groups.setdefault(item.group, []).append(number)
    most = dict.fromkeys((item.group for item in problem.items), 1)
    for group, members in groups.items():
        demands = [problem.items[number].demands[kind] for number in members]
        if any(demand.ratios != demands[0].ratios for demand in demands):
            most[group] = len(members)
            continue
        members.sort(key=lambda number: problem.items[number].demands[kind].total)
        while most[group] < len(members) and problem.fits(members[: most[group] + 1], kind):
            most[group] += 1
    return most


def surrogate(problem: Problem, placement: Placement, kind: str) -> Weights:
    """Mean and a share of the variance, which is what a quantile of the sum comes to near the spread of usual cards."""
    spreads, reaches = [], []
    for members, card in zip(problem.members(placement), problem.cards, strict=True):
        if card.kind == kind and len(members) > 1:
            demands = [problem.items[member].demands[kind] for member in members]
            spread = math.sqrt(sum(demand.variance for demand in demands))
            spreads.append(spread)
            reaches.append(_quantile_above_mean(problem, members, kind) / max(spread, 1.0))
    usable = problem.usable(kind)
    spread = max(statistics.median(spreads), 1.0) if spreads else 0.02 * usable
    reach = statistics.median(reaches) if reaches else 1.5
    # sqrt(V) ≤ s/2 + V/(2s), with equality where V = s².
    weights = [
        None if demand is None else math.ceil((demand.mean + reach * demand.variance / (2 * spread)) / MiB)
        for demand in (item.demands.get(kind) for item in problem.items)
    ]
    limit = math.floor((usable - reach * spread / 2) / MiB)
    return Weights(kind, tuple(None if weight is None else min(weight, limit) for weight in weights), limit)


def _quantile_above_mean(problem: Problem, members: Sequence[int], kind: str) -> float:
    """How far above its mean the sum lies with the bound's chance; how groups err is left to the check."""
    demands = [problem.items[member].demands[kind] for member in members]
    mean = sum(demand.mean for demand in demands)
    low, high = mean, 2 * mean
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if overflow_risk(demands, int(middle)) > problem.bound else (low, middle)
    return high - mean


def cover_cut(problem: Problem, members: Sequence[int], kind: str) -> Cut:
    """The smallest set that does not hold, from one that does not; and all that weighs as much as each of it."""
    kept = sorted(members, key=lambda member: (problem.items[member].demands[kind].total, member))
    for member in tuple(kept):
        rest = [other for other in kept if other != member]
        if rest and not problem.fits(rest, kind):
            kept = rest
    comparable = _comparable(problem, kind)
    heaviest = problem.items[kept[-1]].demands[kind].total
    extended = set(kept)
    if extended <= set(comparable):
        extended |= {member for member in comparable if problem.items[member].demands[kind].total >= heaviest}
    return Cut(kind, tuple(sorted(extended)), len(kept) - 1)


def cardinality_cuts(problem: Problem, kind: str) -> list[Cut]:
    """How many of the largest can share: of all items from some size on, at most one, at most two, …"""
    order = _comparable(problem, kind)
    cuts = []
    for most in range(1, _MOST_SHARING + 1):
        # The window of `most` + 1 neighbours moves to smaller items; once it holds, so do all after it.
        low, high = most, len(order)
        while low < high:
            middle = (low + high) // 2
            window = order[middle - most : middle + 1]
            low, high = (low, middle) if problem.fits(window, kind) else (middle + 1, high)
        if low > most:
            cuts.append(Cut(kind, tuple(order[:low]), most))
    return cuts


def _comparable(problem: Problem, kind: str) -> list[int]:
    """Items that differ in nothing but their size, the largest first: the most that share one curve and err alone."""
    groups = Counter(item.group for item in problem.items)
    alone = [number for number, item in enumerate(problem.items) if kind in item.demands and groups[item.group] == 1]
    curves = Counter(problem.items[number].demands[kind].ratios for number in alone)
    if not curves:
        return []
    usual = curves.most_common(1)[0][0]
    same = [number for number in alone if problem.items[number].demands[kind].ratios == usual]
    return sorted(same, key=lambda number: (-problem.items[number].demands[kind].total, number))
