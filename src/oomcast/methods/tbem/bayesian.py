"""A Gaussian process: what few runs say of a quantity and how sure that is; and where the next run would tell most.

The quantity is thought of as a constant, a part that is linear in the variables, products of two of them, and something
smooth beside. How large each part is, is a priori unknown: the sizes that make the runs most probable are taken (the
evidence, by a search over powers of two). Few runs make an honest model: what they do not tell stays uncertain, where
least squares would have to choose.

Used twice: to choose runs (`next_row`, the one that lowers the expected error over all candidates most), and to carry a
Gap from one place to another, by learning the difference to what is known there (`gap`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["GaussianProcess", "Sizes", "fit_process", "next_row"]

Floats: TypeAlias = NDArray[np.float64]

_LENGTH = 0.7
"""Of the smooth part, in units of each variable's range."""
_STEPS = tuple(2.0**power for power in range(-9, 5))
_NOISE = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
_SWEEPS = 3
_LEAST_FOR_PRODUCTS = 6
"""Fewer runs cannot tell products and wiggles from noise."""


@dataclass(frozen=True)
class Sizes:
    """Standard deviations of the parts, in units of the response's own size; `noise` is a share of each row's scale."""

    constant: float
    linear: float
    products: float
    smooth: float
    noise: float

    def as_dict(self) -> dict[str, float]:
        return {name: float(getattr(self, name)) for name in ("constant", "linear", "products", "smooth", "noise")}


@dataclass(frozen=True)
class GaussianProcess:
    """Fitted to rows of variables `x` with responses `y`; immutable."""

    names: tuple[str, ...]
    x: Floats
    y: Floats
    scale: Floats
    """What each row's error is relative to."""
    low: Floats
    high: Floats
    unit: float
    sizes: Sizes

    @property
    def cv_error_(self) -> float:
        """Root mean square of each row's relative error by a fit without it, sizes kept."""
        if len(self.y) < 2:
            return math.inf
        inverse = np.asarray(np.linalg.inv(self._covariance()), dtype=np.float64)
        left_out = (inverse @ (self.y / self.unit)) / np.diag(inverse)
        return float(np.sqrt(np.mean((left_out * self.unit / self.scale) ** 2)))

    def predict(self, x: ArrayLike) -> Floats:
        result: Floats = self._kernel(_matrix(x), self.x) @ self._weights() * self.unit
        return result

    def predict_variance(self, x: ArrayLike) -> Floats:
        """Of the quantity itself, without a run's own noise."""
        rows = _matrix(x)
        cross = self._kernel(rows, self.x)
        prior = np.diag(self._kernel(rows, rows))
        explained = np.einsum("ij,ij->i", cross, np.linalg.solve(self._covariance(), cross.T).T)
        result: Floats = np.maximum(prior - explained, 0.0) * self.unit**2
        return result

    def equation(self, digits: int = 4) -> str:
        """In words: it is no formula of few terms."""
        parts = ", ".join(f"{name} {value:.{digits}g}" for name, value in self.sizes.as_dict().items())
        return f"the posterior mean of {len(self.y)} runs over {', '.join(self.names)} ({parts})"

    def to_plain(self) -> dict[str, Any]:
        return {
            "kind": "gaussian process",
            "names": list(self.names),
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "scale": self.scale.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "unit": self.unit,
            "sizes": self.sizes.as_dict(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> GaussianProcess:
        """Read what `to_plain` gave; raises ValueError, TypeError or KeyError for what is damaged."""
        names = tuple(map(str, plain["names"]))
        x, y, scale = _matrix(plain["x"]), _numbers(plain["y"]), _numbers(plain["scale"])
        low, high = _numbers(plain["low"]), _numbers(plain["high"])
        if x.shape != (len(y), len(names)) or len(scale) != len(y) or len(low) != len(names) or len(high) != len(names):
            raise ValueError("the columns do not go together")
        sizes = Sizes(**{name: float(value) for name, value in plain["sizes"].items()})
        return cls(names, x, y, scale, low, high, float(plain["unit"]), sizes)

    def _weights(self) -> Floats:
        return np.asarray(np.linalg.solve(self._covariance(), self.y / self.unit), dtype=np.float64)

    def _covariance(self) -> Floats:
        noise = (self.sizes.noise * self.scale / self.unit) ** 2
        return self._kernel(self.x, self.x) + np.diag(noise + 1e-12)

    def _kernel(self, left: Floats, right: Floats) -> Floats:
        return _kernel(_scaled(left, self.low, self.high), _scaled(right, self.low, self.high), self.sizes)


def fit_process(
    x: ArrayLike,
    y: ArrayLike,
    names: Sequence[str],
    scale: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
) -> GaussianProcess:
    """The sizes that make the rows most probable. `scale` is what each row's error is relative to; `bounds` are the
    lowest and highest values that the variables will have, where the rows do not reach them."""
    rows, response, relative = _matrix(x), _numbers(y), _numbers(scale)
    low, high = (rows.min(axis=0), rows.max(axis=0)) if bounds is None else (_numbers(bounds[0]), _numbers(bounds[1]))
    unit = max(float(np.abs(response).max()), 1.0)
    scaled, target, noise = _scaled(rows, low, high), response / unit, relative / unit
    best = Sizes(1.0, 0.125, 1 / 512, 1 / 512, 0.004)
    parts = ["constant", "linear", "noise"]
    if len(response) >= _LEAST_FOR_PRODUCTS:
        parts += ["products", "smooth"]
    highest = _evidence(scaled, target, noise, best)
    for _ in range(_SWEEPS):
        for part in parts:
            for value in _NOISE if part == "noise" else _STEPS:
                tried = Sizes(**{**best.as_dict(), part: value})
                evidence = _evidence(scaled, target, noise, tried)
                if evidence > highest:
                    best, highest = tried, evidence
    return GaussianProcess(tuple(names), rows, response, relative, low, high, unit, best)


def next_row(process: GaussianProcess, candidates: ArrayLike, scale: ArrayLike) -> int:
    """The candidate whose measurement lowers the expected squared relative error over all of them most."""
    rows, relative = _matrix(candidates), _numbers(scale)
    cross = process._kernel(rows, process.x)
    explained = cross @ np.linalg.solve(process._covariance(), cross.T)
    covariance = process._kernel(rows, rows) - explained
    noise = (process.sizes.noise * relative / process.unit) ** 2
    gain = ((covariance / relative[:, None]) ** 2).sum(axis=0) / (np.diag(covariance) + noise + 1e-18)
    return int(np.argmax(gain))


def _evidence(x: Floats, y: Floats, noise: Floats, sizes: Sizes) -> float:
    covariance = _kernel(x, x, sizes) + np.diag((sizes.noise * noise) ** 2 + 1e-12)
    try:
        lower = np.linalg.cholesky(covariance)
    except np.linalg.LinAlgError:
        return -math.inf
    whitened = np.linalg.solve(lower, y)
    # A weak belief that parts are small and runs repeat well keeps few runs from believing in wiggles.
    belief = math.log2(sizes.linear * 8) ** 2 / 64
    belief += sum(math.log2(part * 16) ** 2 for part in (sizes.products, sizes.smooth)) / 64
    belief += math.log2(sizes.noise / 0.003) ** 2 / 16
    return float(-0.5 * whitened @ whitened - np.log(np.diag(lower)).sum()) - belief


def _kernel(left: Floats, right: Floats, sizes: Sizes) -> Floats:
    count = max(left.shape[1], 1)
    inner = left @ right.T / count
    apart = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2) / count
    result: Floats = (
        sizes.constant**2
        + sizes.linear**2 * inner * 3
        + sizes.products**2 * (inner * 3) ** 2
        + sizes.smooth**2 * np.exp(-apart / (2 * _LENGTH**2))
    )
    return result


def _scaled(rows: Floats, low: Floats, high: Floats) -> Floats:
    """Each variable from -1 to 1 over its range."""
    width = np.where(high > low, high - low, 1.0)
    result: Floats = (rows - low) / width * 2 - 1
    return result


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
