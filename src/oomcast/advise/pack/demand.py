"""How much a job may turn out to hold: the estimate's interval as a distribution, and the sums of several.

A job's true device total is its point estimate times a random ratio, whose quantiles the interval gives. Every process
has its own CUDA context, which is part of its device total, so the totals of jobs on one card add up.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import BadInput
from ...estimation import Estimate, QuantileCurve, load_interval
from ...units import MiB, check_size, format_bytes

__all__ = ["Demand", "Sum", "lower_equivalent", "overflow_risk"]

_STEPS = 1024
"""Sums are computed in so many steps of a card's memory, each job rounded up."""

Floats = npt.NDArray[np.float64]

_TAIL_POINTS = 40
_TAIL_END = 1e-6


@dataclass(frozen=True)
class Demand:
    """What one job holds on one kind of card."""

    total: int
    """The point estimate, bytes."""
    ratios: QuantileCurve
    """Truth / point estimate."""
    lone_risk: float | None = None
    """The probability of running out of memory where no other job shares the card, if it is known better than from
    `ratios`: such a job can release its allocator's cache when the card is full, which is no help against what other
    processes hold."""

    @classmethod
    def from_estimate(cls, estimate: Estimate) -> Demand:
        if estimate.interval_basis is not None:
            return cls(estimate.device_total, estimate.interval_basis.interval.curve, estimate.p_oom)
        side = (1 - estimate.coverage) / 2
        bounds = {side: estimate.low, 0.5: estimate.device_total, 1 - side: estimate.high}
        if estimate.coverage > 0.5:
            bounds[estimate.coverage] = estimate.will_not_exceed
        return cls(estimate.device_total, _curve(bounds, estimate.device_total), estimate.p_oom)

    @classmethod
    def from_bounds(cls, total: int, low: int | None = None, high: int | None = None, coverage: float = 0.95) -> Demand:
        """Of an estimate that somebody gives; without bounds, oomcast's own interval is taken."""
        if total < 1:
            raise BadInput(f"the device total must be above 0, not {format_bytes(total)}.")
        for nbytes in (total, low, high):
            check_size(nbytes or 0)
        if low is None and high is None:
            return cls(total, load_interval().curve)
        if low is None or high is None:
            raise BadInput("an interval has two ends; give both low and high, or neither.")
        if not 0 < low <= total <= high:
            raise BadInput(
                f"the limits contradict each other: low {format_bytes(low)}, device_total {format_bytes(total)} and "
                f"high {format_bytes(high)} must rise in this order."
            )
        if not 0 < coverage < 1:
            raise BadInput(f"the coverage must lie between 0 and 1, not {coverage:g}.")
        side = (1 - coverage) / 2
        return cls(total, _curve({side: low, 0.5: total, 1 - side: high}, total))

    @property
    def tail(self) -> float:
        """The share of cases beyond the last quantile that is known: how large they are is extrapolated."""
        exact = self.ratios.values[0] == self.ratios.values[-1]
        return 0.0 if exact else 1 - self.ratios.levels[-1]

    @property
    def mean(self) -> float:
        """Of the true total, bytes."""
        return self.total * _moments(self.ratios)[0]

    @property
    def variance(self) -> float:
        return self.total**2 * _moments(self.ratios)[1]

    def drawn(self, chance: float) -> int:
        """The total that is not exceeded with that chance: from a uniform number, a draw from the distribution."""
        places, reached = _distribution(self.ratios)
        return max(round(self.total * float(np.interp(chance, reached, places))), 1)

    def with_others(self, others: Sequence[Demand]) -> Demand:
        """The sum of jobs whose errors go together, as those of one model do: their quantiles add up."""
        if not others:
            return self
        total = self.total + sum(other.total for other in others)
        if all(other.ratios == self.ratios for other in others):
            return Demand(total, self.ratios)
        parts = (self, *others)
        first = max(part.ratios.levels[0] for part in parts)
        last = min(part.ratios.levels[-1] for part in parts)
        levels = sorted({level for part in parts for level in part.ratios.levels if first <= level <= last})
        return Demand(
            total, _curve({level: sum(part.total * part.ratios.at(level) for part in parts) for level in levels}, total)
        )


@dataclass(frozen=True, eq=False)
class Sum:
    """The distribution of what independent jobs hold together, as far as it stays within a capacity."""

    capacity: int
    start: int
    """Steps below which it cannot be."""
    masses: Floats
    """The probabilities of `start` steps, one more, …, up to the capacity."""

    @classmethod
    def empty(cls, capacity: int) -> Sum:
        return cls(capacity, 0, np.ones(1))

    def plus(self, demand: Demand) -> Sum:
        first, own = _masses(demand, self.capacity)
        start = self.start + first
        room = self.capacity // _step(self.capacity)
        if start > room:
            return Sum(self.capacity, start, np.zeros(1))
        return Sum(self.capacity, start, np.convolve(self.masses, own)[: room - start + 1])

    @property
    def risk(self) -> float:
        """That it is more than the capacity; rounding only makes it larger."""
        return float(min(max(1.0 - self.masses.sum(), 0.0), 1.0))


def overflow_risk(groups: Sequence[Demand], capacity: int) -> float:
    """The probability that independent demands together are more than `capacity`."""
    return functools.reduce(Sum.plus, groups, Sum.empty(capacity)).risk


def lower_equivalent(demand: Demand, rate: float) -> float:
    """-log E exp(-rate·X) / rate, from below: what X surely weighs in a sum that must stay small.

    By Chernoff's bound P(ΣX ≤ C) ≤ exp(rate·C) · Π E exp(-rate·X). Where the left side must be at least 1 - risk, the
    sum of these weights is at most C - log(1 - risk) / rate: a condition that is linear and never wrong.
    """
    places, reached = _distribution(demand.ratios)
    masses = np.diff(reached, prepend=0.0)
    # All mass of a stretch at its lower end, and what the curve's end leaves out at its last point.
    lower = np.concatenate([[0.0], places[:-1]]) * demand.total
    expected = float((masses * np.exp(-rate * lower)).sum()) + (1 - reached[-1]) * math.exp(
        -rate * places[-1] * demand.total
    )
    return -math.log(expected) / rate


def _curve(bounds: Mapping[float, float], total: int) -> QuantileCurve:
    """From quantiles in bytes; bounds of one estimate may overlap, a curve must not fall."""
    levels = sorted(bounds)
    values = itertools.accumulate((bounds[level] / total for level in levels), max)
    return QuantileCurve(tuple(levels), tuple(values))


@functools.lru_cache(maxsize=4096)
def _distribution(ratios: QuantileCurve) -> tuple[Floats, Floats]:
    """Places and the probability of staying at or below each; linear between, jumps where a place stands twice."""
    low, high = ratios.values[0], ratios.values[-1]
    below = [low - distance for distance in reversed(_tail(lambda x: 1 - ratios.above(low - x), low))]
    above = [high + distance for distance in _tail(lambda x: ratios.above(high + x), high)]
    below = [place for place in below if place > 0]
    places = [*below, *ratios.values, *above]
    reached = [
        *(1 - ratios.above(place) for place in below),
        *ratios.levels,
        *(1 - ratios.above(place) for place in above),
    ]
    if not below:
        reached[0] = 0.0  # what the tail would put below zero is at the first place
    if not above:
        reached[-1] = 1.0
    return np.asarray(places, dtype=np.float64), np.asarray(reached, dtype=np.float64)


def _tail(mass: Callable[[float], float], scale: float) -> list[float]:
    """Distances at which an exponential tail is known; the upper one is drawn no thinner than it is. Empty: none."""
    if mass(scale * 1e-9) <= _TAIL_END:
        return []
    reach = scale * 1e-3
    while mass(reach) > _TAIL_END:
        reach *= 2
    return [reach * (number / _TAIL_POINTS) ** 2 for number in range(1, _TAIL_POINTS + 1)]


@functools.lru_cache(maxsize=4096)
def _moments(ratios: QuantileCurve) -> tuple[float, float]:
    places, reached = _distribution(ratios)
    masses = np.diff(reached)
    middles = (places[1:] + places[:-1]) / 2
    rest = float(reached[0])
    mean = float((masses * middles).sum()) + rest * float(places[0])
    square = float((masses * middles**2).sum()) + rest * float(places[0]) ** 2
    return mean, max(square - mean**2, 0.0)


def _step(capacity: int) -> int:
    return max(capacity // _STEPS, MiB)


@functools.lru_cache(maxsize=16384)
def _masses(demand: Demand, capacity: int) -> tuple[int, Floats]:
    """Probabilities of `first` steps, one more, …, up to the capacity; what is beyond is left out."""
    step = _step(capacity)
    places, reached = _distribution(demand.ratios)
    sizes = places * demand.total
    first = max(math.floor(float(sizes[0]) / step) - 1, 0)
    last = min(math.ceil(float(sizes[-1]) / step), capacity // step)
    if last < first:
        return first, np.zeros(1)
    edges = np.arange(first, last + 1, dtype=np.float64) * step
    return first, np.diff(_reached_at(edges, sizes, reached), prepend=0.0)


def _reached_at(edges: Floats, sizes: Floats, reached: Floats) -> Floats:
    """The distribution function at those edges; where several places are equal it jumps to the last."""
    after = np.searchsorted(sizes, edges, side="right")
    low, high = np.clip(after - 1, 0, len(sizes) - 1), np.clip(after, 0, len(sizes) - 1)
    span = sizes[high] - sizes[low]
    share = np.where(span > 0, (edges - sizes[low]) / np.where(span > 0, span, 1.0), 0.0)
    inside = reached[low] + np.clip(share, 0.0, 1.0) * (reached[high] - reached[low])
    return np.where(after == 0, 0.0, inside)
