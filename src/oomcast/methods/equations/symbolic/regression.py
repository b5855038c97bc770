"""Symbolic regression: the equation that samples support, from a search over forms; numbers in, an equation out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .config import OnGeneration, SearchConfig
from .engines import Candidate, Proposals, propose
from .equation import Equation
from .expression import Expression, Floats, value
from .samples import checked, folds, table
from .sums import unscaled

__all__ = ["SymbolicRegression"]

_SETTINGS = ("engine", "population", "generations", "seed", "max_size", "primitives", "metric", "config")


class SymbolicRegression:
    """An equation for a positive response, found by search; after scikit-learn's conventions, without needing it.

    Engine `operon`: genetic programming in C++ proposes forms; then, among sums of the products of powers that it and a
    bounded degree offer, the best of each length is looked for. Engine `deap`: the published search, slow. Both judge
    by relative errors. Without `subtract` among the primitives the engine `operon` gives positive constants only.
    A `config` takes the place of all other settings.

    After `fit`: `front_` (the equations that no other betters in both size and error), `equation_` (the one to trust by
    an information criterion, simplified, its constants rounded), `residuals_` (response over prediction, less 1, of
    each row when it was kept out), `cv_error_` (their mean size), `names_`, `low_`, `high_`, `rows_`, `seconds_`.
    """

    front_: tuple[Equation, ...]
    equation_: Equation
    residuals_: Floats
    cv_error_: float
    names_: tuple[str, ...]
    low_: Floats
    high_: Floats
    rows_: int
    seconds_: float

    def __init__(
        self,
        engine: str = "operon",
        population: int = 300,
        generations: int = 150,
        seed: int = 0,
        max_size: int = 60,
        primitives: Sequence[str] = ("add", "multiply", "square", "cube"),
        metric: str = "mape",
        config: SearchConfig | None = None,
    ) -> None:
        self.engine = engine
        self.population = population
        self.generations = generations
        self.seed = seed
        self.max_size = max_size
        self.primitives = primitives
        self.metric = metric
        self.config = config

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings, as scikit-learn asks for them."""
        return {name: getattr(self, name) for name in _SETTINGS}

    def set_params(self, **params: Any) -> SymbolicRegression:
        """Change settings; unknown names are refused."""
        for name, setting in params.items():
            if name not in _SETTINGS:
                raise ValueError(f"{type(self).__name__} has no parameter {name!r}")
            setattr(self, name, setting)
        return self

    @property
    def search(self) -> SearchConfig:
        """All settings of the search as they will be used."""
        if self.config is not None:
            return self.config
        settings = {name: getattr(self, name) for name in _SETTINGS if name != "config"}
        return SearchConfig(**{**settings, "primitives": tuple(self.primitives)})

    def fit(
        self,
        x: ArrayLike,
        y: ArrayLike,
        names: Sequence[str] | None = None,
        on_generation: OnGeneration | None = None,
    ) -> SymbolicRegression:
        """Search and choose. Equal rows (repetitions) are kept out together."""
        config = self.search
        rows, response, known = checked(x, y, names)
        started = time.perf_counter()
        # The searches see numbers up to 1.
        scales, top = np.abs(rows).max(axis=0), float(response.max())
        scaled, target = rows / scales, response / top
        proposals = propose(scaled, target, known, config, on_generation)
        by_name = dict(zip(known, map(float, scales), strict=True))

        def in_units(expression: Expression) -> Equation:
            equation = Equation(unscaled(expression, by_name, top), known)
            return replace(equation, error=equation.mape(rows, response))

        candidates = proposals.fitted(scaled, target)
        if not candidates:
            raise ValueError("the search found no equation with finite values: give it more generations")
        self.front_ = _pareto(in_units(candidate.expression) for candidate in candidates)
        self.equation_ = in_units(_trusted(candidates)).rounded(rows, response)
        self.residuals_ = _kept_out(proposals, scaled, target, known, config.seed)
        self.cv_error_ = float(np.abs(self.residuals_).mean())
        self.names_, self.rows_ = known, len(rows)
        self.low_, self.high_ = rows.min(axis=0), rows.max(axis=0)
        self.seconds_ = time.perf_counter() - started
        return self

    def predict(self, x: ArrayLike) -> Floats:
        """The chosen equation at each row."""
        return self._fitted().predict(x)

    def outside(self, x: ArrayLike) -> NDArray[np.bool_]:
        """Which rows lie beyond the smallest or largest value that the fit has seen of a variable."""
        self._fitted()
        rows = table(x, self.names_)
        return np.asarray(((rows < self.low_) | (rows > self.high_)).any(axis=1))

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """R², the share of the response's variance that is explained."""
        response = np.asarray(y, dtype=np.float64)
        total = float(((response - response.mean()) ** 2).sum())
        left = float(((response - self.predict(x)) ** 2).sum())
        return 1 - left / total if total else float(left == 0)

    def _fitted(self) -> Equation:
        if not hasattr(self, "equation_"):
            raise ValueError("fit the regression first")
        return self.equation_


def _trusted(candidates: Sequence[Candidate]) -> Expression:
    return min(candidates, key=lambda candidate: candidate.criterion).expression


def _pareto(equations: Iterable[Equation]) -> tuple[Equation, ...]:
    """From small to large, each with a lower error than all smaller ones."""
    kept: list[Equation] = []
    for equation in sorted(equations, key=lambda one: (one.size, one.error)):
        if np.isfinite(equation.error) and (not kept or equation.error < kept[-1].error):
            kept.append(equation)
    return tuple(kept)


def _kept_out(proposals: Proposals, x: Floats, y: Floats, names: Sequence[str], seed: int) -> Floats:
    """Each row's response over its prediction, less 1, where its fold had no part in fitting and choosing."""
    residuals = np.empty(len(y))
    for out in folds(x, seed):
        candidates = proposals.fitted(x[~out], y[~out])
        columns = dict(zip(names, x[out].T, strict=True))
        predicted = value(_trusted(candidates), columns) if candidates else np.nan
        residuals[out] = y[out] / predicted - 1
    return residuals
