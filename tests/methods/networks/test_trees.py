"""Trees taken out of scikit-learn answer as they did in it; quantiles do not cross."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.methods.gpumemnet.networks import QuantileTrees
from oomcast.methods.gpumemnet.networks.trees import TreeSettings, fit_quantile_trees

sklearn = pytest.importorskip("sklearn.ensemble")
LEVELS = (0.1, 0.5, 0.9)


def _rows(count: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed)
    x = drawn.uniform(-1, 1, size=(count, 3))
    return x, x[:, 0] ** 2 + drawn.normal(size=count) * (0.05 + 0.3 * (x[:, 1] > 0))


@pytest.fixture(scope="module")
def fitted() -> QuantileTrees:
    x, y = _rows()
    return fit_quantile_trees(x, y, np.ones(len(y)), LEVELS, TreeSettings(trees=30, features=1.0))


def test_plain_arrays_find_the_leaves_of_scikit_learn() -> None:
    """The mean of the leaves' own rows, instead of quantiles, is what scikit-learn answers."""
    x, y = _rows(200)
    own = TreeSettings(trees=10)
    made = fit_quantile_trees(x, y, np.ones(len(y)), (0.5,), own)
    model = sklearn.ExtraTreesRegressor(
        10, max_depth=own.depth, min_samples_leaf=own.leaf, max_features=own.features, random_state=own.seed
    ).fit(x, y, sample_weight=np.ones(len(y)))
    means = np.concatenate([tree.tree_.value[:, 0, 0] for tree in model.estimators_])
    assert len(means) == len(made.value)
    new, _ = _rows(seed=1)
    again = dataclasses.replace(made, value=means[:, None].astype(np.float32))
    assert np.allclose(again.predict(new)[:, 0], model.predict(new), atol=1e-5)


def test_quantiles_cover_and_follow_the_spread(fitted: QuantileTrees) -> None:
    x, y = _rows(seed=2)
    found = fitted.predict(x)
    assert 0.6 < np.mean((found[:, 0] <= y) & (y <= found[:, 2])) < 0.95
    width = found[:, 2] - found[:, 0]
    assert width[x[:, 1] > 0].mean() > 1.2 * width[x[:, 1] <= 0].mean()


@settings(max_examples=30, deadline=None)
@given(row=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_levels_never_cross(fitted: QuantileTrees, row: list[float]) -> None:
    found = fitted.predict_one(row)
    assert list(found) == sorted(found)


def test_they_survive_their_arrays(fitted: QuantileTrees) -> None:
    x, _ = _rows(seed=3)
    again = QuantileTrees.from_arrays(fitted.to_arrays(), LEVELS, 3)
    assert np.array_equal(again.predict(x), fitted.predict(x))


def test_arrays_that_are_no_trees_are_refused(fitted: QuantileTrees) -> None:
    arrays = dict(fitted.to_arrays())
    for changed, words in (
        ({"left": arrays["left"] + len(arrays["left"])}, "outside"),
        ({"feature": arrays["feature"] + 3}, "outside"),
        ({"right": arrays["right"] + 0.5}, "whole number"),
        ({"value": arrays["value"][:-1]}, "one length"),
        ({"value": arrays["value"] + np.inf}, "finite"),
    ):
        with pytest.raises(ValueError, match=words):
            QuantileTrees.from_arrays({**arrays, **changed}, LEVELS, 3)
    with pytest.raises(ValueError, match="levels"):
        QuantileTrees.from_arrays(fitted.to_arrays(), (0.5, 0.1, 0.9), 3)


def test_rows_and_weights_must_match() -> None:
    x, y = _rows(10)
    with pytest.raises(ValueError, match="10 rows, 9 values"):
        fit_quantile_trees(x, y[:-1], np.ones(10), LEVELS)
