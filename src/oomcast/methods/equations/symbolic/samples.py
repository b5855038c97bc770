"""Samples as learners want them, checked: a table of variables, one positive response for each row; and their hull."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .packages import needed

__all__ = ["LEAST_ROWS", "SampledHull", "checked", "folds", "table"]

Floats: TypeAlias = NDArray[np.float64]

LEAST_ROWS = 8
"""Fewer different rows than this cannot tell one form of equation from another."""


def table(x: ArrayLike, names: Sequence[str]) -> Floats:
    """The variables as rows and columns, a column for each name."""
    try:
        rows = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("the variables must be a table of numbers") from None
    if rows.ndim == 1 and len(names) == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise ValueError("the variables must be a table: rows and columns")
    if rows.shape[1] != len(names):
        raise ValueError(
            f"{rows.shape[1]} variables were given where {len(names)} are needed: {', '.join(names) or 'none'}"
        )
    if not np.isfinite(rows).all():
        raise ValueError(f"a value of {names[int(np.argmin(np.isfinite(rows).all(axis=0)))]} is not a finite number")
    return rows


def checked(x: ArrayLike, y: ArrayLike, names: Sequence[str] | None) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Variables, response and names, if an equation can be learned from them; else a ValueError says what is needed."""
    try:
        shape = np.shape(np.asarray(x, dtype=np.float64))
        response = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("variables and response must be numbers") from None
    width = shape[1] if len(shape) == 2 else 1
    known = tuple(names) if names is not None else tuple(f"x{place}" for place in range(width))
    if len(known) != width:
        raise ValueError(f"{len(known)} names for {width} variables")
    if not known or not all(isinstance(name, str) and name for name in known) or len(set(known)) != len(known):
        raise ValueError("each variable needs a name of its own")
    rows = table(x, known)
    if response.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows of variables for a response of shape {response.shape}")
    if not np.isfinite(response).all():
        raise ValueError("a response is not a finite number")
    if (response <= 0).any():
        raise ValueError(f"every response must be greater than 0; one is {response.min():g}")
    if len(rows) and (constant := (rows == rows[0]).all(axis=0)).any():
        name = known[int(np.argmax(constant))]
        raise ValueError(
            f"{name} has the same value in every sample, so its effect cannot be learned: vary it or leave it out"
        )
    if (different := len(np.unique(rows, axis=0))) < (least := max(LEAST_ROWS, 2 * width + 2)):
        raise ValueError(
            f"{different} different samples are too few for {width} variables: at least {least} are needed"
        )
    return rows, response, known


def folds(x: Floats, seed: int, most: int = 10) -> list[NDArray[np.bool_]]:
    """Which rows to keep out together, in turn; equal rows always are."""
    _, inverse = np.unique(x, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    different = int(inverse.max()) + 1
    parts = (np.random.default_rng(seed).permutation(different) % min(most, different))[inverse]
    return [parts == part for part in range(min(most, different))]


_INSIDE = 1e-6


class SampledHull:
    """The hull in scaled space: each variable from 0 (its least sample) to 1 (its largest), by its logarithm where all
    its samples are positive. A variable that does not vary counts by its distance from its one value."""

    def __init__(self, rows: ArrayLike) -> None:
        samples = np.asarray(rows, dtype=np.float64)
        if samples.ndim != 2 or not samples.size or not np.isfinite(samples).all():
            raise ValueError("a hull needs rows of finite numbers")
        self._by_logarithm = (samples > 0).all(axis=0)
        moved = self._moved(samples)
        self._low = moved.min(axis=0)
        spread = moved.max(axis=0) - self._low
        self._spread = np.where(spread > 0, spread, 1.0)
        self._corners = np.unique((moved - self._low) / self._spread, axis=0)

    def distance(self, point: Sequence[float]) -> float:
        """0 inside; else the least sum of distances along the variables, in ranges of the samples."""
        values = np.asarray(point, dtype=np.float64)
        if values.shape != self._low.shape or not np.isfinite(values).all():
            raise ValueError(f"a point of this hull has {len(self._low)} finite numbers")
        if (self._by_logarithm & (values <= 0)).any():
            return float("inf")
        place = (self._moved(values[None, :])[0] - self._low) / self._spread
        return self._beyond(place)

    def _moved(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        safe = np.where(self._by_logarithm, rows, 1.0)
        return np.where(self._by_logarithm, np.log(safe), rows)

    def _beyond(self, place: NDArray[np.float64]) -> float:
        """A linear program: the mixture of samples that is nearest to the place."""
        samples, width = self._corners.shape
        near = np.eye(width)
        mixture = self._corners.T
        solution: Any = needed("scipy.optimize").linprog(
            np.concatenate([np.zeros(samples), np.ones(width)]),
            A_ub=np.block([[mixture, -near], [-mixture, -near]]),
            b_ub=np.concatenate([place, -place]),
            A_eq=np.concatenate([np.ones(samples), np.zeros(width)])[None, :],
            b_eq=[1.0],
            method="highs",
        )
        if solution.fun is None:
            raise ValueError(f"the distance to the samples could not be found: {solution.message}")
        return 0.0 if solution.fun < _INSIDE else float(solution.fun)
