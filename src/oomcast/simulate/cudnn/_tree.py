"""Decision trees as the table stores them: three bytes a node, each node before its left side, then its right."""

from __future__ import annotations

import itertools
import sys
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

__all__ = ["LEAF", "SCALE", "Tree", "pack", "unpack"]

LEAF = 255
SCALE = 512
"""Thresholds are kept in steps of 1/512: a seventh of a percent, where the feature is a logarithm."""


class Tree:
    """Answers with a leaf's number."""

    def __init__(self, kinds: bytes, values: Sequence[int]) -> None:
        """`kinds` has each node's feature, or LEAF; `values` its threshold times SCALE, or the leaf's number."""
        self._kinds = kinds
        self._values = values
        self._right = _right_children(kinds)

    def leaf_of(self, row: Sequence[float]) -> int:
        at = 0
        kinds, values, right = self._kinds, self._values, self._right
        while kinds[at] != LEAF:
            at = at + 1 if row[kinds[at]] * SCALE <= values[at] else right[at]
        return values[at]


def _right_children(kinds: bytes) -> array[int]:
    """Where each node's right side begins: after all of its left side."""
    right = array("l", bytes(array("l").itemsize * len(kinds)))
    waiting: list[int] = []
    for at, kind in enumerate(kinds):
        if kind != LEAF:
            waiting.append(at)
        elif waiting:
            right[waiting.pop()] = at + 1
    return right


def pack(trees: Sequence[tuple[bytes, Sequence[int]]]) -> bytes:
    """Bytes of some trees: the kinds of all nodes, then their values, sorted by kind.

    The thresholds of one feature are alike, and so are leaves; low and high bytes apart: both compress better so.
    """
    kinds = b"".join(tree_kinds for tree_kinds, _ in trees)
    values = [value for _, tree_values in trees for value in tree_values]
    numbers = array("h", (values[at] for at in sorted(range(len(kinds)), key=kinds.__getitem__)))
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return kinds + raw[0::2] + raw[1::2]


def unpack(packed: bytes, nodes: Sequence[int]) -> tuple[Tree, ...]:
    """The trees of `packed`, which have that many nodes each; raises ValueError if it holds others."""
    count = sum(nodes)
    if len(packed) != 3 * count:
        raise ValueError(f"{len(packed)} bytes are not {count} nodes")
    kinds = packed[:count]
    raw = bytearray(2 * count)
    raw[0::2], raw[1::2] = packed[count : 2 * count], packed[2 * count :]
    numbers = array("h")
    numbers.frombytes(bytes(raw))
    if sys.byteorder == "big":
        numbers.byteswap()
    of_kind: dict[int, Iterator[int]] = {}
    begin = 0
    for kind, found in sorted(Counter(kinds).items()):
        of_kind[kind] = iter(numbers[begin : begin + found])
        begin += found
    values = array("h", map(next, map(of_kind.__getitem__, kinds)))
    ends = list(itertools.accumulate(nodes))
    return tuple(Tree(kinds[end - size : end], values[end - size : end]) for end, size in zip(ends, nodes, strict=True))
