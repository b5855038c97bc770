"""How far the truth lies from the point estimate: the ratios of measured runs, shipped as data (`interval.json`).

There are two kinds: with the catalogue's context, and with one calibrated by a real run, which is nearer. Both are for
the job in the middle of the measured runs: `for_job` makes them wider or narrower by what drives a job's error
(`doubt.py`). The errors behind them were divided by it before their quantiles were taken.

The bounds are conformal, for data that come in groups, and honest for a group never seen. Rows of one group resemble
each other, so the plain quantile of all rows promises too much for a new group. Here every group counts the same, its
rows share its weight, and one more group stands at infinity for the one to come: a new row of a new group then lies
below the bound with at least the asked probability, whatever the distribution, if groups are exchangeable (Lee, Barber
and Willett, Distribution-free inference with hierarchical data, 2023, arXiv:2306.06342).
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..errors import BadInput, OomcastError
from .doubt import Doubt, DoubtWeights

__all__ = [
    "INTERVAL_SCHEMA",
    "GroupCoverage",
    "Interval",
    "QuantileCurve",
    "group_curve",
    "group_quantile",
    "group_range",
    "interval_from_json",
    "interval_to_json",
    "leave_group_out",
    "load_interval",
]

INTERVAL_SCHEMA = 3
_FILE = "interval.json"
_TOLERANCE = 1e-4
_DIGITS = 3
"""Of a spread: it is part of an interval's name."""


@dataclass(frozen=True)
class Interval:
    """The distribution of truth / estimate over model families that were never seen, for the job in the middle."""

    id: str
    coverage: float
    """Of the three bounds below: what one gets without asking for another."""
    lower: float
    upper: float
    """The true device total lies between `lower` and `upper` times the estimate in a `coverage` share of runs."""
    upper_one_sided: float
    """It does not exceed this many times the estimate in a `coverage` share of runs."""
    provenance: str
    curve: QuantileCurve
    runs: int
    """How many measured runs it was made from."""
    weights: DoubtWeights

    def check(self, coverage: float) -> None:
        """Raises BadInput for a coverage that the measured runs cannot promise."""
        most = 1 - 2 * max(self.curve.levels[0], 1 - self.curve.levels[-1])
        if not 0 < coverage <= most + _TOLERANCE:
            raise BadInput(
                f"the coverage must be above 0 and at most {most:.3g}, not {coverage:g}: "
                "the measured runs behind the interval cannot promise more."
            )

    def ratios(self, coverage: float | None = None) -> tuple[float, float, float]:
        """Truth / estimate: the two ends of the interval, and the one-sided bound; 1 lies between them."""
        level = self.coverage if coverage is None else coverage
        side = (1 - level) / 2
        low, high, one_sided = (self.curve.at(at) for at in (side, 1 - side, max(level, 0.5)))
        return min(low, 1.0), max(high, 1.0), max(one_sided, 1.0)

    def around(self, device_total: int, floor: int, coverage: float | None = None) -> tuple[int, int]:
        """Low and high, the estimate always between; never below what parameters and context alone take."""
        low, high, _ = self.ratios(coverage)
        return max(round(device_total * low), floor), round(device_total * high)

    def not_exceeded(self, device_total: int, coverage: float | None = None) -> int:
        """The one-sided bound; never below the estimate."""
        return round(device_total * self.ratios(coverage)[2])

    def for_job(self, doubt: Doubt | None, total: int) -> Interval:
        """That of a job with so much of what drives the error in its total."""
        return self.widened(self.spread(doubt, total))

    def spread(self, doubt: Doubt | None, total: int) -> float:
        """How many times as far off as the job in the middle; without an allocator that was measured, as far as it.

        The highest context of the catalogue stands at the upper end of a job that holds nothing else.
        """
        if doubt is None:
            return 1.0
        by_runs = self.weights.share(doubt, total) / self.weights.middle
        by_context = doubt.context / max(total, 1) / (self.upper - 1)
        return round(by_runs + by_context, _DIGITS)

    def widened(self, spread: float) -> Interval:
        """The same with every error that many times as large."""
        if spread == 1:
            return self

        def wider(ratio: float) -> float:
            return max(1 + (ratio - 1) * spread, 0.0)

        return dataclasses.replace(
            self,
            id=f"{self.id}-times-{spread:g}",
            lower=wider(self.lower),
            upper=wider(self.upper),
            upper_one_sided=wider(self.upper_one_sided),
            curve=QuantileCurve(self.curve.levels, tuple(wider(ratio) for ratio in self.curve.values)),
        )

    def chance_above(self, needed: int, limit: int) -> float:
        """The probability that what is estimated as `needed` is more than `limit` in truth."""
        return 1.0 if limit <= 0 else round(self.curve.above(limit / max(needed, 1)), 6)


@functools.cache
def load_interval(calibrated: bool = False) -> Interval:
    """The shipped interval for a context from the catalogue, or for a calibrated one."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    try:
        return interval_from_json(json.loads(text), calibrated)
    except (KeyError, TypeError, ValueError) as problem:
        raise OomcastError(f"the data file oomcast/estimation/{_FILE} is broken: {problem}.") from problem


def interval_from_json(content: Mapping[str, Any], calibrated: bool) -> Interval:
    """Raises KeyError, TypeError or ValueError for what is not an interval of this version."""
    if content["schema"] != INTERVAL_SCHEMA:
        raise ValueError(f"schema {INTERVAL_SCHEMA} is expected")
    # Without runs to tell how near a calibrated context comes, the wider interval holds for it as well.
    kind = "calibrated" if calibrated and "calibrated" in content else "catalogue"
    recorded = content[kind]
    interval = Interval(
        id=f"{content['id']}-{kind}",
        coverage=recorded["coverage"],
        lower=recorded["lower"],
        upper=recorded["upper"],
        upper_one_sided=recorded["upper_one_sided"],
        provenance=recorded["provenance"],
        curve=QuantileCurve(tuple(recorded["levels"]), tuple(recorded["quantiles"])),
        runs=recorded["runs"],
        weights=DoubtWeights.read(content["doubt"]),
    )
    side = (1 - interval.coverage) / 2
    for bound, level in ((interval.lower, side), (interval.upper, 1 - side), (interval.upper_one_sided, 1 - 2 * side)):
        if abs(interval.curve.at(level) - bound) > _TOLERANCE:
            raise ValueError(f"its bound {bound} is not the quantile {level:.3g} of its curve")
    return interval


def interval_to_json(name: str, kinds: Mapping[str, Interval]) -> dict[str, Any]:
    """Plain data that `interval_from_json` reads; the kinds are `catalogue` and `calibrated`."""
    weights = dataclasses.asdict(next(iter(kinds.values())).weights)
    return {"schema": INTERVAL_SCHEMA, "id": name, "doubt": weights} | {
        kind: {
            "coverage": one.coverage,
            "lower": one.lower,
            "upper": one.upper,
            "upper_one_sided": one.upper_one_sided,
            "provenance": one.provenance,
            "runs": one.runs,
            "levels": list(one.curve.levels),
            "quantiles": list(one.curve.values),
        }
        for kind, one in kinds.items()
    }


_ROUNDING = 1e-12


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


@dataclass(frozen=True)
class QuantileCurve:
    """A distribution by its quantiles: linear between those that are known, with exponential tails beyond."""

    levels: tuple[float, ...]
    """Rising, between 0 and 1, on both sides of the median."""
    values: tuple[float, ...]
    """Never falling."""

    def __post_init__(self) -> None:
        if len(self.levels) != len(self.values) or len(self.levels) < 2:
            raise ValueError("a curve needs as many values as levels, and at least two")
        if not all(low < high for low, high in itertools.pairwise((0.0, *self.levels, 1.0))):
            raise ValueError("levels must rise from 0 to 1")
        if not self.levels[0] < 0.5 < self.levels[-1]:
            raise ValueError("levels must lie on both sides of the median")
        if not all(low <= high for low, high in itertools.pairwise((-math.inf, *self.values, math.inf))):
            raise ValueError("values must not fall")
        if not all(math.isfinite(value) for value in self.values):
            raise ValueError("values must be finite")

    def at(self, level: float) -> float:
        """The quantile of that level; beyond the levels that are known nothing can be promised."""
        if not self.levels[0] - _ROUNDING <= level <= self.levels[-1] + _ROUNDING:
            raise ValueError(f"the curve knows levels from {self.levels[0]} to {self.levels[-1]}, not {level}")
        after = min(max(bisect.bisect_left(self.levels, level), 1), len(self.levels) - 1)
        low, high = self.levels[after - 1], self.levels[after]
        share = min(max((level - low) / (high - low), 0.0), 1.0)
        return _between(self.values[after - 1], self.values[after], share)

    def above(self, value: float) -> float:
        """The probability of more than `value`: never rises with it."""
        if math.isnan(value):
            raise ValueError("not a number")
        if value < self.values[0]:
            first = self.levels[0]
            return 1 - first * _fading(self.values[0] - value, self.at(min(4 * first, 0.5)) - self.values[0])
        if value >= self.values[-1]:
            last = 1 - self.levels[-1]
            return last * _fading(value - self.values[-1], self.values[-1] - self.at(max(1 - 4 * last, 0.5)))
        after = bisect.bisect_right(self.values, value)
        low, high = self.values[after - 1], self.values[after]
        share = (value - low) / (high - low)
        return 1 - _between(self.levels[after - 1], self.levels[after], share)


def _between(low: float, high: float, share: float) -> float:
    """Rounding leaves neither end, and never turns a rise into a fall."""
    return min(low + (high - low) * share, high)


def _fading(distance: float, quartering: float) -> float:
    """1 at the outermost quantile, falling on as it fell over the last `quartering`, where four times became once."""
    if quartering <= 0:
        return 1.0 if distance <= 0 else 0.0
    return math.exp(-math.log(4) * distance / quartering)


def group_curve(scores: Sequence[float], groups: Sequence[Hashable], levels: Iterable[float]) -> QuantileCurve:
    """All bounds at once: upper ones from the median on, lower ones below, each honest for a group never seen.

    Levels that the number of groups cannot promise are left out.
    """
    mirrored = [-score for score in scores]
    bounds = [
        (level, group_quantile(scores, groups, level) if level >= 0.5 else -group_quantile(mirrored, groups, 1 - level))
        for level in sorted(set(levels))
    ]
    known = [(level, bound) for level, bound in bounds if math.isfinite(bound)]
    return QuantileCurve(tuple(level for level, _ in known), tuple(bound for _, bound in known))


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
        if reached >= level - _ROUNDING:
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
