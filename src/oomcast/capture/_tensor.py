"""What the graphs of the frameworks say of a value that is never made."""

from __future__ import annotations

import math
from typing import NamedTuple

__all__ = ["Tensor"]


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
