"""What few runs say of a quantity, by all short polynomials at once; and where the next run would tell most.

Beyond its tensors a framework holds its libraries, and scratch space that grows with the size of some tensor or with
the number of layers: a constant and a few products of the factors. Which products, few runs cannot tell. So none is
chosen: every polynomial of up to three terms is given the probability that the runs leave it (its evidence, times a
prior that halves with every term and every degree), and the answer is the mean over all of them. Where those that are
still probable disagree, or a coefficient is unsure, the answer is unsure.

What short polynomials leave over is mostly no noise: the same configuration misses them by nearly as much each time
(another kernel, another hole in the heap), and its neighbours by something similar. So it is a smooth function of the
place, known near the runs and unknown far from them; a design therefore spreads its runs, and does not only go where
coefficients are told best, into the corners.

Runs are now and then disturbed. Errors are thought of as Student's: a run that all probable polynomials miss counts
less.

Used twice: to choose runs (`next_row`, the one that lowers the expected error over all candidates most), and to carry a
Gap from one place to another, by learning the difference to what is known there (`gap`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["AveragedPolynomial", "average_polynomials", "next_row"]

Floats: TypeAlias = NDArray[np.float64]
Whole: TypeAlias = NDArray[np.int64]
Powers: TypeAlias = tuple[int, ...]

_DEGREE, _POWER = 4, 2
_MOST_PRODUCTS = 150
"""With many factors the degree is lowered until there are no more."""
_NOISE = (0.0005, 0.001, 0.002, 0.004, 0.008)
"""How well runs repeat, as a share of what they hold; a thousandth or two is usual."""
_USUAL_NOISE, _NOISE_SPREAD = 0.002, 0.7
_SIZES = (0.01, 0.03, 0.1, 0.3, 1.0)
"""What a term adds at its largest, as a share of the response: each as probable as the others."""
_STUDENT = 4
"""Degrees of freedom of a run's error."""
_REWEIGHTINGS = 2
_OF_THE_PLACE = 0.9
"""The share of what is left over (its variance) that belongs to the place. Repeated runs differ by about a thousandth,
polynomials miss by two to six."""
_REACH = 0.5
"""How far it is alike, in units of each factor's range."""
_LEAST_FOR_TERMS = {2: 4, 3: 6}
"""Fewer runs cannot tell so many terms from noise."""
_PAIRS_EXTENDED = 60
_MOST_POLYNOMIALS = 300
_LEAST_LOG_ODDS = -12.0


@dataclass(frozen=True)
class _Polynomial:
    """One of those that are averaged: which columns it has, the constant first, and what the runs say of them."""

    probability: float
    columns: Whole
    noise: float
    mean: Floats
    covariance: Floats


@dataclass(frozen=True)
class AveragedPolynomial:
    """The mean of all short polynomials, each as probable as the rows make it; immutable."""

    names: tuple[str, ...]
    products: tuple[Powers, ...]
    """The powers of the variables in each term; the constant comes first."""
    coefficients: tuple[float, ...]
    """Of the products of variables that are divided by `high`."""
    low: Floats
    high: Floats
    figures: int
    """How many of the variables, the last ones, are figures of a trace."""
    noise: float
    """What polynomials leave over (standard deviation), as a share of each row's scale."""
    runs: Floats
    """The variables of the rows that were learnt from."""
    left: Floats
    """What each of these adds to its neighbours, as weights."""
    cv_error_: float
    """Root mean square of each row's relative error by the same polynomials alone, fitted without it."""
    unit: float
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    polynomials: tuple[_Polynomial, ...] = ()
    """These two are not in a file: they are needed to choose runs, not to predict."""

    def predict(self, x: ArrayLike) -> Floats:
        alike = _OF_THE_PLACE * self._alike(_matrix(x), self.runs)
        result: Floats = self._columns(x) @ np.asarray(self.coefficients) + alike @ self.left
        return result

    def covariance(self, x: ArrayLike, scale: Floats) -> Floats:
        """Of the quantity itself at these rows, without a run's own noise: what coefficients leave open, what the
        polynomials disagree about, and what they leave over far from the runs. `scale` as for the rows."""
        rows = _matrix(x)
        columns = self._columns(rows)
        means = np.array([columns[:, one.columns] @ one.mean for one in self.polynomials])
        weights = np.array([one.probability for one in self.polynomials])
        apart = means - weights @ means
        result: Floats = (apart * weights[:, None]).T @ apart
        for one in self.polynomials:
            result += one.probability * columns[:, one.columns] @ one.covariance @ columns[:, one.columns].T
        place = _OF_THE_PLACE * self.noise**2
        own = np.diag((1 - _OF_THE_PLACE) * (self.noise * self.scale) ** 2)
        at_runs = place * self._alike(self.runs, self.runs) * np.outer(self.scale, self.scale) + own
        across = place * self._alike(rows, self.runs) * np.outer(scale, self.scale)
        here = place * self._alike(rows, rows) * np.outer(scale, scale)
        return result * self.unit**2 + here - across @ np.linalg.solve(at_runs, across.T)

    def _alike(self, left: Floats, right: Floats) -> Floats:
        """From 1 at the same place to 0 far away."""
        return _alike(left, right, self.low, self.high, len(self.names) - self.figures)

    def equation(self, digits: int = 4) -> str:
        """The mean polynomial as a formula, without terms below a thousandth of its largest; what it leaves over near
        the runs is added to it."""
        by_size = sorted(zip(self.coefficients, self.products, strict=True), key=lambda one: -abs(one[0]))
        least = abs(by_size[0][0]) / 1000
        shown = [(value, powers) for value, powers in by_size if abs(value) >= least] or by_size[:1]
        texts = []
        for value, powers in shown:
            unit = float(np.prod(self.high ** np.array(powers)))
            variables = "".join(
                f"*{name}" + (f"^{power}" if power > 1 else "")
                for name, power in zip(self.names, powers, strict=True)
                if power
            )
            texts.append(f"{value / unit:.{digits}g}{variables}")
        return " + ".join(texts).replace("+ -", "- ")

    def to_plain(self) -> dict[str, Any]:
        return {
            "kind": _KIND,
            "names": list(self.names),
            "terms": [
                {"powers": list(powers), "coefficient": value}
                for powers, value in zip(self.products, self.coefficients, strict=True)
            ],
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "figures": self.figures,
            "noise": self.noise,
            "runs": self.runs.tolist(),
            "left": self.left.tolist(),
            "cv_error": self.cv_error_ if math.isfinite(self.cv_error_) else None,
            "unit": self.unit,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> AveragedPolynomial:
        """Read what `to_plain` gave; raises ValueError, TypeError or KeyError for what is damaged."""
        names = tuple(map(str, plain["names"]))
        products = tuple(tuple(int(power) for power in term["powers"]) for term in plain["terms"])
        coefficients = tuple(map(float, _numbers([float(term["coefficient"]) for term in plain["terms"]])))
        low, high, left = (_numbers(plain[name]) for name in ("low", "high", "left"))
        runs, figures = _matrix(plain["runs"]), int(plain["figures"])
        if runs.shape != (len(left), len(names)) or not len(low) == len(high) == len(names) >= figures >= 0:
            raise ValueError("the runs do not go with the variables")
        if not products or any(len(powers) != len(names) for powers in products):
            raise ValueError("the terms do not go with the variables")
        if not (high > 0).all() or any(not 0 <= power <= _DEGREE for powers in products for power in powers):
            raise ValueError("a power or a range is no such thing")
        error = math.inf if plain["cv_error"] is None else float(plain["cv_error"])
        noise, unit = float(plain["noise"]), float(plain["unit"])
        return cls(names, products, coefficients, low, high, figures, noise, runs, left, error, unit)

    def _columns(self, x: ArrayLike) -> Floats:
        return _columns(_matrix(x) / self.high, self.products)


_KIND = "averaged polynomial"


def average_polynomials(
    x: ArrayLike,
    y: ArrayLike,
    names: Sequence[str],
    scale: ArrayLike,
    figures: int = 0,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
) -> AveragedPolynomial:
    """Average over all short polynomials of the rows.

    `scale` is what each row's error is relative to; `figures` says how many of the variables, the last ones, are
    figures of a trace, sizes already, which are not multiplied with others; `bounds` are the least and the largest
    values that the variables will have, where the rows do not reach them.
    """
    variables, response, relative = _matrix(x), _numbers(y), _numbers(scale)
    low = variables.min(axis=0) if bounds is None else _numbers(bounds[0])
    top = np.abs(variables).max(axis=0) if bounds is None else _numbers(bounds[1])
    top = np.where(top > 0, top, 1.0)
    unit = max(float(np.abs(response).max()), 1.0)
    products = _products(len(names), figures)
    columns = _columns(variables / top, products)
    # The constant is in every polynomial. Among the others, each degree makes a term half as probable.
    chance = np.array([-math.log(2) * sum(powers) for powers in products[1:]])
    chance -= np.log(np.exp(chance).sum())
    design, target = columns / (relative / unit)[:, None], response / relative
    spread = np.ones(len(response))
    for step in range(_REWEIGHTINGS + 1):
        weights = 1 / np.sqrt(spread)
        found = _posterior(design * weights[:, None], target * weights, chance)
        if step < _REWEIGHTINGS:
            noise = sum(one.probability * one.noise**2 for one in found)
            missed = target - sum(one.probability * design[:, one.columns] @ one.mean for one in found)
            spread = np.maximum((_STUDENT + missed**2 / noise) / (_STUDENT + 1), 1.0)
    coefficients = np.zeros(len(products))
    for one in found:
        coefficients[one.columns] += one.probability * one.mean * unit
    # A disturbed run tells its neighbours nothing: what makes it count less stands beside its own noise.
    alike = _alike(variables, variables, low, top, len(names) - figures)
    near = _OF_THE_PLACE * alike + np.diag(1 - _OF_THE_PLACE + spread - 1)
    return AveragedPolynomial(
        names=tuple(names),
        products=products,
        coefficients=tuple(map(float, coefficients)),
        low=low,
        high=top,
        figures=figures,
        noise=math.sqrt(sum(one.probability * one.noise**2 for one in found)),
        runs=variables,
        left=np.asarray(np.linalg.solve(near, response - columns @ coefficients), dtype=np.float64),
        cv_error_=_left_out_error(design, target, weights, found),
        unit=unit,
        scale=relative,
        polynomials=found,
    )


def _alike(left: Floats, right: Floats, low: Floats, high: Floats, factors: int) -> Floats:
    width = np.where(high > low, high - low, 1.0)
    apart = ((left[:, None, :factors] - right[None, :, :factors]) / width[:factors]) ** 2
    result: Floats = np.exp(-apart.sum(axis=2) / (2 * _REACH**2))
    return result


def next_row(model: AveragedPolynomial, candidates: ArrayLike, scale: ArrayLike) -> int:
    """The candidate whose measurement lowers the expected squared relative error over all of them most."""
    relative = _numbers(scale)
    covariance = model.covariance(candidates, relative)
    noise = (1 - _OF_THE_PLACE) * (model.noise * relative) ** 2
    gain = ((covariance / relative[:, None]) ** 2).sum(axis=0) / (np.diag(covariance) + noise + 1e-18)
    return int(np.argmax(gain))


def _products(variables: int, figures: int) -> tuple[Powers, ...]:
    """The powers of every term that a polynomial may have, the constant's first."""
    factors = variables - figures
    alone = [tuple(int(i == j) for j in range(variables)) for i in range(factors, variables)]
    for degree in range(_DEGREE, 0, -1):
        found = [
            (*powers, *[0] * figures)
            for total in range(1, degree + 1)
            for powers in _sums(factors, total)
            if max(powers, default=0) <= _POWER
        ]
        if len(found) <= _MOST_PRODUCTS:
            break
    return (tuple([0] * variables), *found, *alone)


def _sums(places: int, total: int) -> Iterator[Powers]:
    """All whole numbers from 0 in so many places that add up to the total."""
    for chosen in itertools.combinations_with_replacement(range(places), total):
        yield tuple(chosen.count(place) for place in range(places))


def _columns(scaled: Floats, products: Sequence[Powers]) -> Floats:
    powers = np.array(products)
    result: Floats = np.prod(scaled[:, None, :] ** powers[None, :, :], axis=2)
    return result


def _posterior(design: Floats, target: Floats, chance: Floats) -> tuple[_Polynomial, ...]:
    """The most probable polynomials, of each number of terms, noise and size of terms; probabilities add up to 1."""
    count = len(chance)
    single = np.arange(1, count + 1, dtype=np.int64)[:, None]
    scored = _Scored(design, target, chance)
    scored.add(np.zeros((1, 0), dtype=np.int64))
    scored.add(single)
    if len(target) >= _LEAST_FOR_TERMS[2] and count > 1:
        pairs = np.array(list(itertools.combinations(range(1, count + 1), 2)), dtype=np.int64)
        odds = scored.add(pairs)
        if len(target) >= _LEAST_FOR_TERMS[3] and count > 2:
            likely = pairs[np.argsort(-odds, kind="stable")[:_PAIRS_EXTENDED]].tolist()
            triples = {tuple(sorted((*pair, other))) for pair in likely for other in range(1, count + 1)}
            three = sorted(triple for triple in triples if len(set(triple)) == 3)
            scored.add(np.array(three, dtype=np.int64))
    return scored.best()


class _Scored:
    """Polynomials with the logarithm of how probable each is, up to a constant."""

    def __init__(self, design: Floats, target: Floats, chance: Floats) -> None:
        self._rows = len(target)
        self._gram, self._moment, self._square = design.T @ design, design.T @ target, float(target @ target)
        self._chance = chance
        self._scores: list[tuple[Floats, Whole, float, float]] = []

    def add(self, terms: Whole) -> Floats:
        """Score polynomials of these terms beside the constant; returns each one's best."""
        columns = np.column_stack([np.zeros(len(terms), dtype=np.int64), terms])
        size = terms.shape[1]
        prior = self._chance[terms - 1].sum(axis=1) - size * math.log(2) + math.log(math.factorial(size))
        gram = self._gram[columns[:, :, None], columns[:, None, :]]
        moment = self._moment[columns]
        best = np.full(len(terms), -math.inf)
        for noise, largest in itertools.product(_NOISE, _SIZES if size else _SIZES[-1:]):
            shrink = self._shrink(size, largest)
            precision = gram / noise**2 + np.diag(shrink)
            mean = np.linalg.solve(precision, moment[:, :, None] / noise**2)[:, :, 0]
            explained = (mean * moment).sum(axis=1) / noise**2
            score = prior + 0.5 * (explained - self._square / noise**2 - np.linalg.slogdet(precision)[1])
            score += 0.5 * np.log(shrink).sum() - self._rows * math.log(noise)
            score -= 0.5 * (math.log(noise / _USUAL_NOISE) / _NOISE_SPREAD) ** 2
            if size:
                score -= math.log(len(_SIZES))
            self._scores.append((score, columns, noise, largest))
            best = np.maximum(best, score)
        return best

    def best(self) -> tuple[_Polynomial, ...]:
        every = np.concatenate([score for score, *_ in self._scores])
        highest = float(every.max())
        least = max(float(np.sort(every)[-min(_MOST_POLYNOMIALS, len(every))]), highest + _LEAST_LOG_ODDS)
        total = float(np.exp(every[every >= least] - highest).sum())
        found = []
        for score, columns, noise, largest in self._scores:
            for number in np.nonzero(score >= least)[0]:
                own = columns[number]
                shrink = self._shrink(len(own) - 1, largest)
                covariance = np.linalg.inv(self._gram[np.ix_(own, own)] / noise**2 + np.diag(shrink))
                mean = covariance @ self._moment[own] / noise**2
                probability = math.exp(float(score[number]) - highest) / total
                found.append(_Polynomial(probability, own, noise, mean, covariance))
        return tuple(found)

    @staticmethod
    def _shrink(size: int, largest: float) -> Floats:
        """One over the prior's variances: the constant may be as large as the response, terms as large as said."""
        return np.array([1.0] + [1 / largest**2] * size)


def _left_out_error(design: Floats, target: Floats, weights: Floats, found: Sequence[_Polynomial]) -> float:
    if len(target) < 2:
        return math.inf
    missed = np.zeros(len(target))
    for one in found:
        columns = design[:, one.columns]
        leverage = np.einsum("ij,jk,ik->i", columns, one.covariance, columns) * weights**2 / one.noise**2
        missed += one.probability * (target - columns @ one.mean) / np.maximum(1 - leverage, 1e-9)
    return float(np.sqrt(np.mean(missed**2)))


def _matrix(x: ArrayLike) -> Floats:
    matrix = np.asarray(x, dtype=np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError("the variables must be a table of finite numbers")
    return matrix


def _numbers(values: ArrayLike) -> Floats:
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise ValueError("these must be finite numbers")
    return numbers
