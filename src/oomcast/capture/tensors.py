"""What the graphs of the frameworks say of a value that is never made: its shape, its bytes, its strides."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Tensor", "dense_strides"]


class Tensor(NamedTuple):
    shape: tuple[int, ...]
    dtype: str
    itemsize: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize


def dense_strides(shape: tuple[int, ...], channels_last: bool = False) -> tuple[int, ...]:
    """Of a tensor without gaps whose channels are its second extent; in memory they may come last (NHWC)."""
    if not channels_last:
        return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))
    channels = shape[1]
    spatial = [channels * math.prod(shape[position + 1 :]) for position in range(2, len(shape))]
    return (channels * math.prod(shape[2:]), 1, *spatial)
