"""A small decision tree over a formula's number: grown by `distill`, read by the table. Plain Python on both sides.

A tree is a flat list: an inner node is `feature, threshold, offset of the right child` and is followed by its left
child; a leaf is `-1, label`.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Callable, Sequence

__all__ = ["Tree", "grow", "leaf_of"]

Tree = list[float]

BINS = 48


def leaf_of(tree: Sequence[float], values: Sequence[float]) -> int:
    """The label for one row of features."""
    at = 0
    while tree[at] >= 0:
        at = at + 3 if values[int(tree[at])] <= tree[at + 1] else int(tree[at + 2])
    return int(tree[at + 1])


def grow(
    rows: Sequence[Sequence[float]],
    fits: Sequence[frozenset[int]],
    *,
    smallest: int = 2,
    deepest: int = 18,
) -> Tree:
    """A tree whose leaf labels fit as many rows as possible; `fits` has, for each row, the labels that are right."""
    order = _common_first(fits)
    names = [min(fit, key=order.__getitem__) if fit else -1 for fit in fits]
    edges = [_edges([row[f] for row in rows]) for f in range(len(rows[0]))]
    binned = [[bisect.bisect_left(edges[f], row[f]) for row in rows] for f in range(len(edges))]
    grower = _Grower(fits, names, edges, binned, smallest)
    tree: Tree = []
    grower.node(tree, list(range(len(rows))), deepest)
    return tree


def _common_first(fits: Sequence[frozenset[int]]) -> dict[int, int]:
    """Labels by how many rows they explain that no label before them does: few names for many rows."""
    left = [fit for fit in fits if fit]
    order: dict[int, int] = {}
    while left:
        counts = Counter(label for fit in left for label in fit)
        label = min(counts, key=lambda n: (-counts[n], n))
        order[label] = len(order)
        left = [fit for fit in left if label not in fit]
    for fit in fits:
        for label in sorted(fit):
            order.setdefault(label, len(order))
    return order


def _edges(values: list[float]) -> list[float]:
    """Thresholds between the values that occur, at most BINS of them."""
    distinct = sorted(set(values))
    middles = [(a + b) / 2 for a, b in zip(distinct, distinct[1:], strict=False)]
    if len(middles) <= BINS:
        return [float(f"{m:.6g}") for m in middles]
    ranked = sorted(values)
    chosen = {bisect.bisect_left(middles, ranked[len(ranked) * i // BINS]) for i in range(1, BINS)}
    return [float(f"{middles[min(i, len(middles) - 1)]:.6g}") for i in sorted(chosen)]


class _Grower:
    def __init__(
        self,
        fits: Sequence[frozenset[int]],
        names: list[int],
        edges: list[list[float]],
        binned: list[list[int]],
        smallest: int,
    ) -> None:
        self.fits = fits
        self.names = names
        self.edges = edges
        self.binned = binned
        self.smallest = smallest

    def node(self, tree: Tree, members: list[int], depth: int) -> None:
        label, right = self._best_label(members)
        split = None
        if right < len(members) and depth > 0 and len(members) >= 2 * self.smallest:
            split = self._best_split(members)
        if split is None:
            tree.extend((-1, label))
            return
        feature, cut = split
        bins = self.binned[feature]
        low = [m for m in members if bins[m] <= cut]
        high = [m for m in members if bins[m] > cut]
        at = len(tree)
        tree.extend((feature, self.edges[feature][cut], 0))
        self.node(tree, low, depth - 1)
        tree[at + 2] = len(tree)
        self.node(tree, high, depth - 1)
        if self._is_needless(tree, at, label):
            del tree[at:]
            tree.extend((-1, label))

    @staticmethod
    def _is_needless(tree: Tree, at: int, label: int) -> bool:
        """Both sides are leaves that say the same."""
        return len(tree) - at == 7 and tree[at + 3] < 0 and tree[at + 4] == tree[at + 6]

    def _best_label(self, members: list[int]) -> tuple[int, int]:
        counts = Counter(label for m in members for label in self.fits[m])
        if not counts:
            return 0, len(members)
        label = min(counts, key=lambda n: (-counts[n], n))
        return label, counts[label]

    def _best_split(self, members: list[int]) -> tuple[int, int] | None:
        """The cut after which the names are purest (Gini)."""
        total = Counter(self.names[m] for m in members)
        best, found = sum(n * n for n in total.values()) / len(members) + 1e-9, None
        for feature, bins in enumerate(self.binned):
            by_bin: dict[int, Counter[int]] = {}
            for m in members:
                by_bin.setdefault(bins[m], Counter())[self.names[m]] += 1
            if len(by_bin) < 2:
                continue
            gain, cut = self._best_cut(by_bin, total, len(members))
            if gain > best:
                best, found = gain, (feature, cut)
        return found

    def _best_cut(self, by_bin: dict[int, Counter[int]], total: Counter[int], count: int) -> tuple[float, int]:
        low: Counter[int] = Counter()
        high = Counter(total)
        low_square, high_square, low_count = 0, sum(n * n for n in total.values()), 0
        best, found = -1.0, 0
        for at in sorted(by_bin)[:-1]:
            for name, n in by_bin[at].items():
                low_square += 2 * low[name] * n + n * n
                high_square += n * n - 2 * high[name] * n
                low[name] += n
                high[name] -= n
                low_count += n
            high_count = count - low_count
            if low_count < self.smallest or high_count < self.smallest:
                continue
            gain = low_square / low_count + high_square / high_count
            if gain > best:
                best, found = gain, at
        return best, found
