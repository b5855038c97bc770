"""A forest of trees as plain arrays: every leaf knows quantiles, and the trees' answers are averaged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ._infer import Arrays, Floats

__all__ = ["QuantileTrees"]

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
    """Nodes by levels."""
    root: NDArray[np.int32]
    depth: int

    def predict(self, x: Floats) -> Floats:
        """Rows by levels."""
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
