"""Polynomial regression of one or many variables by least squares: few terms, chosen by cross-validation.

A campaign has tens of runs, so the terms are few: products of powers of the variables, at most half as many as there
are different rows, picked one by one (each time the one that explains most, then exchanged while that helps). How many,
and up to which degree, is decided on rows that were kept out of the picking: each row in turn where rows are few, a
tenth of them where many.

Powers are taken of the variables themselves, only scaled, not centred: a quantity that is a product, such as a batch
times an area, is then one term and not eight. Rows are read in blocks, each reduced to a triangle by orthogonal steps
(QR), so memory does not grow with their number and no accuracy is lost to normal equations.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["PolynomialRegression", "Term", "t_quantile"]

Floats: TypeAlias = NDArray[np.float64]

_BLOCK = 4096
_FEW_ROWS = 40
_FOLDS = 10
_MOST_CANDIDATES = 400
_MOST_TERMS = 24
_SAME = 1e-10
"""Columns this close to a combination of others tell nothing new."""
_EXACT = 1e-8
"""Errors below this share of the response are rounding, not misfit."""


@dataclass(frozen=True)
class Term:
    """One term of the polynomial, in the units of the variables and the response."""

    powers: tuple[int, ...]
    name: str
    """`batch*edge^2`; `1` for the constant."""
    coefficient: float
    error: float
    """The coefficient's standard error; infinite where as many terms as rows leave nothing to judge it by."""


class PolynomialRegression:
    """Least squares on a few products of powers; after scikit-learn's conventions, without needing it.

    `max_degree` bounds the sum of the powers in a term; `max_terms` the number of terms, the constant counted. With
    `relative` the relative error is made small instead of the absolute one, so that small responses count as much as
    large ones; the response must then not be 0. `seed` decides which rows are kept out together where rows are many.

    After `fit`: `terms_`, `degree_`, `sigma_` (the standard deviation of what is left; relative, if asked so),
    `cv_error_` (the root mean square error on rows kept out, in the same measure), `rows_`.
    """

    terms_: tuple[Term, ...]
    degree_: int
    sigma_: float
    cv_error_: float
    rows_: int

    def __init__(
        self, max_degree: int = 4, max_terms: int | None = None, relative: bool = False, seed: int = 0
    ) -> None:
        self.max_degree = max_degree
        self.max_terms = max_terms
        self.relative = relative
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in ("max_degree", "max_terms", "relative", "seed")}

    def set_params(self, **params: Any) -> PolynomialRegression:
        """Change settings; unknown names are refused."""
        for name, value in params.items():
            if name not in self.get_params():
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, value)
        return self

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        names: Sequence[str] | None = None,
        weights: ArrayLike | None = None,
    ) -> PolynomialRegression:
        """Choose the terms and fit their coefficients. Equal rows (repetitions) are kept out of a fit together.

        `weights` multiply each row's error; `sigma_` and `cv_error_` are then those of the weighted errors. They take
        the place of `relative`.
        """
        if weights is not None and self.relative:
            raise ValueError("relative errors have their own weights")
        variables, response = _checked(x, y, self.relative)
        factors = _weights(weights, response, self.relative)
        rows, count = variables.shape
        if self.max_degree < 0 or (self.max_terms is not None and self.max_terms < 1):
            raise ValueError("the degree cannot be negative, and there is at least one term")
        self.names_ = tuple(names) if names is not None else tuple(f"x{i}" for i in range(count))
        if len(self.names_) != count:
            raise ValueError(f"{len(self.names_)} names for {count} variables")
        self.scale_ = np.where((largest := np.abs(variables).max(axis=0)) > 0, largest, 1.0)
        self.low_, self.high_ = variables.min(axis=0), variables.max(axis=0)
        powers = _candidates(variables, self.max_degree)
        groups, different = _groups(variables, self.seed)
        blocks = [
            _reduce(self._rows(variables[groups == group], response[groups == group], factors[groups == group], powers))
            for group in range(int(groups.max()) + 1)
        ]
        most = min(len(powers), max(1, different // 2), self.max_terms or _MOST_TERMS)
        widths = [sum(sum(p) <= degree for p in powers) for degree in range(1, sum(powers[-1]) + 1)] or [1]
        width, size, self.cv_error_ = _choose(blocks, widths, most, rows)
        whole = _reduce(blocks)
        chosen = _pruned(whole, _paths(whole, width, size, rows)[-1])
        self._solve(whole, chosen, powers, rows)
        return self

    def predict(self, x: ArrayLike) -> Floats:
        """The fitted polynomial at each row."""
        fitted: Floats = self._columns(x) @ self.coefficients_
        return fitted

    def predict_variance(self, x: ArrayLike) -> Floats:
        """How unsure the fitted value itself is at each row: x'(X'X)^-1 x times the variance of what is left.

        Where nothing is left to judge by, in units of that unknown variance.
        """
        scale = 1.0 if math.isnan(self.sigma_) or self.sigma_ == 0 else self.sigma_**2
        columns = self._columns(x)
        result: Floats = np.einsum("ij,jk,ik->i", columns, self.inverse_, columns) * scale
        return result

    def predict_interval(self, x: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
        """Bounds for a new response at each row: the fit's own uncertainty and what is left, Student's t."""
        fitted = self.predict(x)
        if self.rows_ <= len(self.terms_):
            return np.full(len(fitted), -math.inf), np.full(len(fitted), math.inf)
        columns = self._columns(x)
        noise = np.abs(fitted) if self.relative else np.ones(len(fitted))
        spread = np.sqrt(np.einsum("ij,jk,ik->i", columns, self.inverse_, columns) + noise**2) * self.sigma_
        reach = t_quantile(0.5 + level / 2, self.rows_ - len(self.terms_)) * spread
        return fitted - reach, fitted + reach

    def coefficient_intervals(self, level: float = 0.95) -> tuple[tuple[float, float], ...]:
        """Bounds for each coefficient, in the order of `terms_`."""
        freedom = self.rows_ - len(self.terms_)
        reach = t_quantile(0.5 + level / 2, freedom) if freedom > 0 else math.inf
        return tuple(
            (t.coefficient - reach * t.error, t.coefficient + reach * t.error) if freedom > 0 else (-math.inf, math.inf)
            for t in self.terms_
        )

    def outside(self, x: ArrayLike) -> NDArray[np.bool_]:
        """Which rows lie beyond the smallest or largest value that the fit has seen of a variable."""
        variables = _matrix(x)
        result: NDArray[np.bool_] = ((variables < self.low_) | (variables > self.high_)).any(axis=1)
        return result

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """R², the share of the response's variance that is explained."""
        response = np.asarray(y, dtype=np.float64)
        total = float(((response - response.mean()) ** 2).sum())
        left = float(((response - self.predict(x)) ** 2).sum())
        return 1 - left / total if total else float(left == 0)

    def equation(self, digits: int = 4) -> str:
        """The polynomial as text."""
        parts = [f"{t.coefficient:.{digits}g}" + ("" if t.name == "1" else f"*{t.name}") for t in self.terms_]
        return " + ".join(parts).replace("+ -", "- ")

    def to_json(self) -> str:
        """All that `predict` and the intervals need, readable."""
        plain = {
            "kind": "polynomial",
            "version": 1,
            "settings": self.get_params(),
            "equation": self.equation(6),
            "variables": [
                {"name": name, "low": float(low), "high": float(high), "scale": float(scale)}
                for name, low, high, scale in zip(self.names_, self.low_, self.high_, self.scale_, strict=True)
            ],
            "terms": [
                {"name": t.name, "powers": list(t.powers), "coefficient": t.coefficient, "error": _finite(t.error)}
                for t in self.terms_
            ],
            "inverse": [[float(value) for value in row] for row in self.inverse_],
            "sigma": _finite(self.sigma_),
            "cv_error": _finite(self.cv_error_),
            "rows": self.rows_,
        }
        return json.dumps(plain, indent=1)

    @classmethod
    def from_json(cls, text: str) -> PolynomialRegression:
        """What `to_json` wrote; anything else is a ValueError."""
        try:
            plain = json.loads(text)
            if (plain["kind"], plain["version"]) != ("polynomial", 1):
                raise ValueError("another kind or version")
            return cls._from_plain(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"not a polynomial of this version: {error}") from None

    @classmethod
    def _from_plain(cls, plain: Mapping[str, Any]) -> PolynomialRegression:
        model = cls(**plain["settings"])
        variables = plain["variables"]
        model.names_ = tuple(str(variable["name"]) for variable in variables)
        model.low_, model.high_, model.scale_ = (
            np.array([float(variable[key]) for variable in variables]) for key in ("low", "high", "scale")
        )
        model.terms_ = tuple(
            Term(
                tuple(int(power) for power in term["powers"]),
                str(term["name"]),
                float(term["coefficient"]),
                _number(term["error"], math.inf),
            )
            for term in plain["terms"]
        )
        if not model.terms_ or any(len(term.powers) != len(variables) for term in model.terms_):
            raise ValueError("the terms do not fit the variables")
        model.inverse_ = np.array(plain["inverse"], dtype=np.float64)
        if model.inverse_.shape != (len(model.terms_),) * 2:
            raise ValueError("the matrix does not fit the terms")
        model.sigma_, model.cv_error_ = _number(plain["sigma"], math.nan), _number(plain["cv_error"], math.nan)
        model.rows_ = int(plain["rows"])
        model._take_terms()
        return model

    def _rows(
        self, variables: Floats, response: Floats, weights: Floats, powers: Sequence[tuple[int, ...]]
    ) -> Iterator[Floats]:
        """The candidates' columns and the response, block by block, weighted."""
        for start in range(0, len(variables), _BLOCK):
            part, wanted, weight = (values[start : start + _BLOCK] for values in (variables, response, weights))
            yield np.column_stack([_monomials(part / self.scale_, powers), wanted]) * weight[:, None]

    def _solve(self, whole: Floats, chosen: list[int], powers: Sequence[tuple[int, ...]], rows: int) -> None:
        columns, target = whole[:, chosen], whole[:, -1]
        solution, *_ = np.linalg.lstsq(columns, target, rcond=None)
        _, triangle = np.linalg.qr(columns)
        root = np.linalg.inv(triangle)
        self.inverse_ = root @ root.T
        freedom = rows - len(chosen)
        left = float(((target - columns @ solution) ** 2).sum())
        self.sigma_ = math.sqrt(left / freedom) if freedom > 0 else math.nan
        self.rows_ = rows
        units = np.array([float(np.prod(self.scale_ ** np.array(powers[i]))) for i in chosen])
        errors = self.sigma_ * np.sqrt(np.diag(self.inverse_)) / units if freedom > 0 else np.full(len(chosen), np.inf)
        self.terms_ = tuple(
            Term(powers[i], _name(powers[i], self.names_), float(value / unit), float(error))
            for i, value, unit, error in zip(chosen, solution, units, errors, strict=True)
        )
        self._take_terms()

    def _take_terms(self) -> None:
        self.degree_ = max(sum(term.powers) for term in self.terms_)
        units = [float(np.prod(self.scale_ ** np.array(term.powers))) for term in self.terms_]
        self.coefficients_ = np.array([t.coefficient * unit for t, unit in zip(self.terms_, units, strict=True)])

    def _columns(self, x: ArrayLike) -> Floats:
        if not hasattr(self, "terms_"):
            raise ValueError("fit the polynomial first")
        variables = _matrix(x)
        if variables.shape[1] != len(self.names_):
            raise ValueError(f"{variables.shape[1]} variables where the fit had {len(self.names_)}")
        return _monomials(variables / self.scale_, [term.powers for term in self.terms_])


def t_quantile(probability: float, freedom: int) -> float:
    """Student's t: the value that is not exceeded with this probability (at least a half)."""
    if freedom > 400:
        z = NormalDist().inv_cdf(probability)
        return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    low, high = 0.0, 1.0
    while _t_within(high, freedom) < 2 * probability - 1:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_within(middle, freedom) < 2 * probability - 1 else (low, middle)
    return (low + high) / 2


def _t_within(t: float, freedom: int) -> float:
    """The chance of lying between -t and t (the finite sums for whole degrees of freedom)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, total = math.cos(angle), 0.0
    term = cosine if freedom % 2 else 1.0
    for k in range(1 + freedom % 2, freedom, 2):
        total += term
        term *= cosine**2 * k / (k + 1)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if freedom % 2 else total


def _choose(blocks: list[Floats], widths: Sequence[int], most: int, rows: int) -> tuple[int, int, float]:
    """Which candidates and how many of them do best on blocks kept out, and the root mean square error there.

    `widths` are the numbers of candidates of rising degrees; of equal choices the one of lowest degree, then of fewest
    terms, is taken.
    """
    if len(blocks) < 3 or most == 1:
        return widths[0], 1, math.nan
    errors = np.zeros((len(widths), most))
    for out, kept_out in enumerate(blocks):
        training = _reduce(block for i, block in enumerate(blocks) if i != out)
        for place, width in enumerate(widths):
            paths = _paths(training, width, most, rows)
            losses = [_loss(training, kept_out, chosen) for chosen in paths]
            errors[place] += losses + losses[-1:] * (most - len(losses))
    rounding = _EXACT**2 * sum(float((block[:, -1] ** 2).sum()) for block in blocks)
    place, size = divmod(int(np.argmax(errors <= errors.min() + rounding)), most)
    return widths[place], size + 1, math.sqrt(errors[place, size] / rows)


def _loss(training: Floats, kept_out: Floats, chosen: list[int]) -> float:
    solution, *_ = np.linalg.lstsq(training[:, chosen], training[:, -1], rcond=None)
    return float(((kept_out[:, -1] - kept_out[:, chosen] @ solution) ** 2).sum())


def _paths(block: Floats, width: int, most: int, rows: int) -> list[list[int]]:
    """For 1, 2, ... terms the columns to take; the constant is always the first.

    It ends early where nothing but rounding is left, or where the best further term explains less than noise would.
    """
    columns, target = block[:, :width], block[:, -1]
    chosen = [0]
    paths = [chosen]
    while len(paths) < most:
        gains, left = _gains(columns, target, chosen)
        best = int(np.argmax(gains))
        if left <= _EXACT**2 * float(target @ target) or gains[best] <= left / max(1, rows - len(chosen)):
            break
        chosen = _exchanged(columns, target, [*chosen, best])
        paths.append(chosen)
    return paths


def _exchanged(columns: Floats, target: Floats, chosen: list[int]) -> list[int]:
    """Exchange single terms for better ones until none is better."""
    for _ in range(len(chosen)):
        changed = False
        for place in range(1, len(chosen)):
            others = chosen[:place] + chosen[place + 1 :]
            gains, _ = _gains(columns, target, others)
            best = int(np.argmax(gains))
            if best != chosen[place] and gains[best] > gains[chosen[place]] * (1 + 1e-9):
                chosen = [*chosen[:place], best, *chosen[place + 1 :]]
                changed = True
        if not changed:
            break
    return chosen


def _pruned(block: Floats, chosen: list[int]) -> list[int]:
    """Without terms that an exact fit does not need."""
    for column in chosen[1:]:
        fewer = [other for other in chosen if other != column]
        if _loss(block, block, fewer) <= _EXACT**2 * float(block[:, -1] @ block[:, -1]):
            chosen = fewer
    return chosen


def _gains(columns: Floats, target: Floats, chosen: list[int]) -> tuple[Floats, float]:
    """By how much each further column would lower the sum of squares, 0 if it tells nothing new; and that sum."""
    basis, _ = np.linalg.qr(columns[:, chosen])
    left = target - basis @ (basis.T @ target)
    free = columns - basis @ (basis.T @ columns)
    norms = (free**2).sum(axis=0)
    new = norms > _SAME * (columns**2).sum(axis=0)
    new[chosen] = False
    return np.where(new, (free.T @ left) ** 2 / np.where(new, norms, 1.0), 0.0), float(left @ left)


def _reduce(blocks: Iterable[Floats]) -> Floats:
    """Rows to a triangle with the same sums of products."""
    waiting: list[Floats] = []
    for block in blocks:
        waiting.append(block)
        if sum(map(len, waiting)) >= _BLOCK:
            waiting = [_triangle(np.vstack(waiting))]
    return _triangle(np.vstack(waiting))


def _triangle(rows: Floats) -> Floats:
    return np.asarray(np.linalg.qr(rows, mode="r")) if len(rows) > rows.shape[1] else rows


def _groups(variables: Floats, seed: int) -> tuple[NDArray[np.int64], int]:
    """A fold for every row, equal rows in one, and how many different rows there are."""
    _, inverse = np.unique(variables, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    different = int(inverse.max()) + 1
    if different <= _FEW_ROWS:
        return inverse.astype(np.int64), different
    shuffled = np.random.default_rng(seed).permutation(different) % _FOLDS
    return shuffled[inverse].astype(np.int64), different


def _candidates(variables: Floats, max_degree: int) -> list[tuple[int, ...]]:
    """Powers of all terms to choose from, the constant first: a variable of m values carries powers below m."""
    most = [min(len(np.unique(column)) - 1, max_degree) for column in variables.T]
    degree = max_degree
    while degree > 1 and math.comb(variables.shape[1] + degree, degree) > _MOST_CANDIDATES:
        degree -= 1
    candidates: list[tuple[int, ...]] = []
    for total in range(degree + 1):
        for picked in itertools.combinations_with_replacement(range(len(most)), total):
            powers = tuple(picked.count(variable) for variable in range(len(most)))
            if all(power <= bound for power, bound in zip(powers, most, strict=True)):
                candidates.append(powers)
    return candidates


def _monomials(scaled: Floats, powers: Sequence[tuple[int, ...]]) -> Floats:
    result = np.ones((len(scaled), len(powers)))
    for column, exponents in enumerate(powers):
        for variable, power in enumerate(exponents):
            if power:
                result[:, column] *= scaled[:, variable] ** power
    return result


def _name(powers: tuple[int, ...], names: Sequence[str]) -> str:
    parts = [name if power == 1 else f"{name}^{power}" for name, power in zip(names, powers, strict=True) if power]
    return "*".join(parts) or "1"


def _matrix(x: ArrayLike) -> Floats:
    variables = np.asarray(x, dtype=np.float64)
    if variables.ndim == 1:
        variables = variables[:, None]
    if variables.ndim != 2:
        raise ValueError("the variables must be a table: rows and columns")
    return variables


def _checked(x: ArrayLike, y: ArrayLike, relative: bool) -> tuple[Floats, Floats]:
    variables, response = _matrix(x), np.asarray(y, dtype=np.float64)
    if response.shape != (len(variables),):
        raise ValueError(f"{len(variables)} rows of variables for a response of shape {response.shape}")
    if not len(response):
        raise ValueError("no rows")
    if not (np.isfinite(variables).all() and np.isfinite(response).all()):
        raise ValueError("a value is not a finite number")
    if relative and (response == 0).any():
        raise ValueError("a response of 0 has no relative error")
    return variables, response


def _weights(asked: ArrayLike | None, response: Floats, relative: bool) -> Floats:
    if asked is None:
        return 1 / np.abs(response) if relative else np.ones(len(response))
    weights = np.asarray(asked, dtype=np.float64)
    if weights.shape != response.shape or not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError("the weights must be one positive number for each row")
    return weights


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _number(value: Any, otherwise: float) -> float:
    return otherwise if value is None else float(value)
