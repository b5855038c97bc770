"""The regressions that an equation is compared with, all behind `fit` and `predict`.

The trees and the network see variables that are scaled to lie between 0 and 1, as published; the trees have their
packages' default settings and 1000 trees. Their packages are loaded when one of them is fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..tbem import PolynomialRegression
from .symbolic import MissingPackage
from .symbolic.packages import needed
from .symbolic.samples import Floats

__all__ = ["BASELINES", "Baseline", "MissingPackage", "baseline"]

_TREES = 1000
_EPOCHS = 100
_WIDTH = 64
_DROPOUT = 0.2
_BATCH = 32


class Baseline(Protocol):
    """What all of them offer."""

    def fit(self, x: ArrayLike, y: ArrayLike) -> Any: ...

    def predict(self, x: ArrayLike) -> Floats: ...


class _Scaled:
    """A regression of variables that are scaled to lie between 0 and 1 on the rows that were fitted."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def fit(self, x: ArrayLike, y: ArrayLike) -> _Scaled:
        rows, response = _checked(x, y)
        self.low = rows.min(axis=0)
        self.span = np.where((span := rows.max(axis=0) - self.low) > 0, span, 1.0)
        self.model = self.make()
        self.model.fit((rows - self.low) / self.span, response)
        return self

    def predict(self, x: ArrayLike) -> Floats:
        if not hasattr(self, "model"):
            raise ValueError("fit the regression first")
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.low):
            raise ValueError(f"the variables must be a table of {len(self.low)} columns, as at the fit")
        return np.asarray(self.model.predict((rows - self.low) / self.span), dtype=np.float64)


class _Network:
    """Three layers with dropout in between, trained by Adam on the mean squared error for 100 epochs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, x: Floats, y: Floats) -> None:
        torch = needed("torch")
        self.top = float(np.abs(y).max()) or 1.0
        threads = torch.get_num_threads()
        # So small a network gains nothing from threads, and with one its sums are always in the same order.
        torch.set_num_threads(1)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                self._train(torch, x, y / self.top)
        finally:
            torch.set_num_threads(threads)

    def _train(self, torch: Any, x: Floats, y: Floats) -> None:
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(x.shape[1], _WIDTH),
            torch.nn.ReLU(),
            torch.nn.Dropout(_DROPOUT),
            torch.nn.Linear(_WIDTH, _WIDTH),
            torch.nn.ReLU(),
            torch.nn.Dropout(_DROPOUT),
            torch.nn.Linear(_WIDTH, 1),
        )
        optimizer = torch.optim.Adam(self.layers.parameters())
        rows, wanted = (torch.tensor(values, dtype=torch.float32) for values in (x, y))
        self.layers.train()
        for _ in range(_EPOCHS):
            for part in torch.randperm(len(rows)).split(_BATCH):
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(self.layers(rows[part])[:, 0], wanted[part]).backward()
                optimizer.step()
        self.layers.eval()

    def predict(self, x: Floats) -> Floats:
        torch = needed("torch")
        with torch.no_grad():
            found = self.layers(torch.tensor(x, dtype=torch.float32))[:, 0].numpy()
        return np.asarray(found, dtype=np.float64) * self.top


class _Linear:
    """Least squares on the variables and a constant."""

    def fit(self, x: ArrayLike, y: ArrayLike) -> _Linear:
        rows, response = _checked(x, y)
        self.factors, *_ = np.linalg.lstsq(np.column_stack([np.ones(len(rows)), rows]), response, rcond=None)
        return self

    def predict(self, x: ArrayLike) -> Floats:
        if not hasattr(self, "factors"):
            raise ValueError("fit the regression first")
        rows = np.asarray(x, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.factors) - 1:
            raise ValueError(f"the variables must be a table of {len(self.factors) - 1} columns, as at the fit")
        return np.asarray(self.factors[0] + rows @ self.factors[1:], dtype=np.float64)


def _boosted(seed: int) -> Baseline:
    return _Scaled(lambda: needed("xgboost").XGBRegressor(n_estimators=_TREES, random_state=seed, n_jobs=1))


def _forest(seed: int) -> Baseline:
    return _Scaled(
        lambda: needed("sklearn.ensemble").RandomForestRegressor(n_estimators=_TREES, random_state=seed, n_jobs=1)
    )


def _extra_trees(seed: int) -> Baseline:
    return _Scaled(
        lambda: needed("sklearn.ensemble").ExtraTreesRegressor(n_estimators=_TREES, random_state=seed, n_jobs=1)
    )


_MAKERS: dict[str, Callable[[int], Baseline]] = {
    "xgboost": _boosted,
    "random forest": _forest,
    "extra trees": _extra_trees,
    "network": lambda seed: _Scaled(lambda: _Network(seed)),
    "polynomial": lambda seed: PolynomialRegression(relative=True, seed=seed),
    "polynomial, absolute errors": lambda seed: PolynomialRegression(seed=seed),
    "linear": lambda seed: _Linear(),
}

BASELINES = tuple(_MAKERS)


def baseline(name: str, seed: int = 0) -> Baseline:
    """The one of that name, to be fitted; equal seeds give equal results."""
    if name not in _MAKERS:
        raise ValueError(f"no baseline is called {name!r}; there are {', '.join(BASELINES)}")
    return _MAKERS[name](seed)


def _checked(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    rows, response = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or response.shape != (len(rows),):
        raise ValueError("the variables must be a table with one response for each row")
    if not (np.isfinite(rows).all() and np.isfinite(response).all()):
        raise ValueError("a value is not a finite number")
    return rows, response
