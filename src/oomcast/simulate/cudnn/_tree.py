"""Decision trees as the table stores them: three bytes a node, each followed by its left side, then its right."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

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


def pack(kinds: bytes, values: Sequence[int]) -> bytes:
    """Bytes of one tree; low and high bytes apart, which compresses better."""
    numbers = array("h", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    raw = numbers.tobytes()
    return kinds + raw[0::2] + raw[1::2]


def unpack(packed: bytes, nodes: int) -> Tree:
    """The tree of that many nodes that begins `packed`."""
    raw = bytearray(2 * nodes)
    raw[0::2], raw[1::2] = packed[nodes : 2 * nodes], packed[2 * nodes : 3 * nodes]
    numbers = array("h")
    numbers.frombytes(bytes(raw))
    if sys.byteorder == "big":
        numbers.byteswap()
    return Tree(packed[:nodes], numbers)
