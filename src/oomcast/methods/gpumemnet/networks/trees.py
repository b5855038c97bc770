"""A forest of trees as plain arrays: every leaf knows quantiles, and the trees' answers are averaged.

Fitted with scikit-learn's extremely randomised trees, which are only needed for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .inference import Arrays, Floats

__all__ = ["QuantileTrees", "TreeSettings", "fit_quantile_trees"]

_WHOLE = ("feature", "left", "right", "root")
_DEEPEST = 64


@dataclass(frozen=True)
class QuantileTrees:
    """Quantiles of what is to be expected, given the features; never falling from level to level.

    All nodes lie in one row of arrays; a leaf has itself as both children.
    """

    levels: tuple[float, ...]
    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    value: NDArray[np.float32]
    """The quantiles at each leaf: one row for each node, one column for each level."""
    root: NDArray[np.int32]
    depth: int

    def predict(self, x: Floats) -> Floats:
        """Quantiles: one row for each input, one column for each level."""
        rows = np.asarray(x, dtype=np.float32)
        node = np.broadcast_to(self.root, (len(rows), len(self.root)))
        across = np.arange(len(rows))[:, None]
        for _ in range(self.depth):
            low = rows[across, self.feature[node]] <= self.threshold[node]
            node = np.where(low, self.left[node], self.right[node])
        answer: Floats = np.sort(self.value[node].mean(axis=1, dtype=np.float64), axis=1)
        return answer

    def predict_one(self, row: Sequence[float]) -> tuple[float, ...]:
        """The quantiles of one row, by level."""
        return tuple(float(value) for value in self.predict(np.array([row], dtype=np.float64))[0])

    def to_arrays(self) -> Arrays:
        # Node numbers stay far below 2^24, up to which float32 holds every whole number.
        whole = {name: getattr(self, name).astype(np.float32) for name in _WHOLE}
        return whole | {"threshold": self.threshold, "value": self.value, "depth": np.array([self.depth], np.float32)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, levels: Sequence[float], features: int) -> QuantileTrees:
        """Raises ValueError or KeyError for arrays that are no such trees."""
        if not levels or list(levels) != sorted(set(levels)) or not 0 < levels[0] <= levels[-1] < 1:
            raise ValueError("the levels must rise between 0 and 1")
        whole = {name: _whole(arrays[name], name) for name in (*_WHOLE, "depth")}
        nodes = len(whole["feature"])
        parts = [arrays["threshold"], whole["left"], whole["right"]]
        if not nodes or any(part.shape != (nodes,) for part in parts) or arrays["value"].shape != (nodes, len(levels)):
            raise ValueError("the trees' arrays are not of one length")
        for name, limit in (("feature", features), ("left", nodes), ("right", nodes), ("root", nodes)):
            if not (whole[name].size and whole[name].min() >= 0 and whole[name].max() < limit):
                raise ValueError(f"{name} of the trees points outside")
        depth = int(whole["depth"][0])
        if not (np.isfinite(arrays["value"]).all() and 0 <= depth <= _DEEPEST):
            raise ValueError("the trees hold what is not a finite number")
        return cls(
            levels=tuple(levels),
            feature=whole["feature"],
            threshold=arrays["threshold"],
            left=whole["left"],
            right=whole["right"],
            value=arrays["value"],
            root=whole["root"],
            depth=depth,
        )


def _whole(array: NDArray[np.float32], name: str) -> NDArray[np.int32]:
    if not np.isfinite(array).all() or (array != np.round(array)).any():
        raise ValueError(f"{name} of the trees holds what is not a whole number")
    return array.astype(np.int32)


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
