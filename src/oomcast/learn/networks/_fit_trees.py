"""Fits quantile trees with scikit-learn's extremely randomised ones, and takes them out as plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._infer import Floats
from ._trees import QuantileTrees

__all__ = ["TreeSettings", "fit_quantile_trees"]


@dataclass(frozen=True)
class TreeSettings:
    trees: int = 100
    depth: int = 12
    leaf: int = 8
    """Rows that a leaf has at least: its quantiles are theirs."""
    features: float = 0.5
    """The share of the features that each branch may look at."""
    seed: int = 0


def fit_quantile_trees(
    x: Floats,
    y: Floats,
    weights: Floats,
    levels: Sequence[float],
    settings: TreeSettings = TreeSettings(),  # noqa: B008 (frozen)
) -> QuantileTrees:
    from sklearn.ensemble import ExtraTreesRegressor

    if len(x) != len(y) or len(x) != len(weights) or not len(x):
        raise ValueError(f"{len(x)} rows, {len(y)} values and {len(weights)} weights")
    model = ExtraTreesRegressor(
        settings.trees,
        max_depth=settings.depth,
        min_samples_leaf=min(settings.leaf, max(len(x) // 4, 1)),
        max_features=settings.features,
        random_state=settings.seed,
    ).fit(x, y, sample_weight=weights)
    leaves = model.apply(x)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("feature", "threshold", "left", "right", "value")}
    roots, count = [], 0
    for number, estimator in enumerate(model.estimators_):
        tree = estimator.tree_
        own, leaf = np.arange(tree.node_count), tree.children_left < 0
        roots.append(count)
        parts["feature"].append(np.where(leaf, 0, tree.feature))
        parts["threshold"].append(_down(np.where(leaf, 0.0, tree.threshold)))
        parts["left"].append(count + np.where(leaf, own, tree.children_left))
        parts["right"].append(count + np.where(leaf, own, tree.children_right))
        parts["value"].append(_leaf_quantiles(leaves[:, number], y, tree.node_count, levels))
        count += tree.node_count
    joined = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    return QuantileTrees(
        levels=tuple(levels),
        feature=joined["feature"].astype(np.int32),
        threshold=joined["threshold"].astype(np.float32),
        left=joined["left"].astype(np.int32),
        right=joined["right"].astype(np.int32),
        value=joined["value"].astype(np.float32),
        root=np.array(roots, dtype=np.int32),
        depth=settings.depth,
    )


def _leaf_quantiles(leaves: NDArray[np.int64], y: Floats, nodes: int, levels: Sequence[float]) -> NDArray[np.float64]:
    """Nodes by levels, from the rows of each leaf."""
    found = np.zeros((nodes, len(levels)))
    order = np.argsort(leaves, kind="stable")
    names, starts = np.unique(leaves[order], return_index=True)
    for name, rows in zip(names, np.split(order, starts[1:]), strict=True):
        found[name] = np.quantile(y[rows], levels)
    return found


def _down(threshold: NDArray[np.float64]) -> NDArray[np.float32]:
    """scikit-learn compares float32 features with float64 thresholds: rounded down, they part the same rows."""
    near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near)
