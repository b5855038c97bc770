"""The convex hull of samples: where a fit interpolates, and how far beyond it a point lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .symbolic._packages import needed

__all__ = ["SampledHull"]

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
        given = np.asarray(point, dtype=np.float64)
        if given.shape != self._low.shape or not np.isfinite(given).all():
            raise ValueError(f"a point of this hull has {len(self._low)} finite numbers")
        if (self._by_logarithm & (given <= 0)).any():
            return float("inf")
        place = (self._moved(given[None, :])[0] - self._low) / self._spread
        return self._beyond(place)

    def _moved(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        safe = np.where(self._by_logarithm, rows, 1.0)
        return np.where(self._by_logarithm, np.log(safe), rows)

    def _beyond(self, place: NDArray[np.float64]) -> float:
        """A linear program: the mixture of samples that is nearest to the place."""
        samples, width = self._corners.shape
        near = np.eye(width)
        mixture = self._corners.T
        found: Any = needed("scipy.optimize").linprog(
            np.concatenate([np.zeros(samples), np.ones(width)]),
            A_ub=np.block([[mixture, -near], [-mixture, -near]]),
            b_ub=np.concatenate([place, -place]),
            A_eq=np.concatenate([np.ones(samples), np.zeros(width)])[None, :],
            b_eq=[1.0],
            method="highs",
        )
        if found.fun is None:
            raise ValueError(f"the distance to the samples could not be found: {found.message}")
        return 0.0 if found.fun < _INSIDE else float(found.fun)
