"""Which calls concern the host alone: they go past the recorder, so that loops of data code stay fast.

A mode beneath autograd costs ten times what a small operator does. A call whose tensors are all real ones of the host
can neither touch the virtual GPU nor make a tensor there; only what might make something large of small tensors, which
the recorder keeps from being real, is left to the recorder.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import EllipsisType
from typing import Any

import numpy
import torch
from torch import nn

from .fakes import LARGE

__all__ = ["BENEATH_MODES", "is_work_of_the_host"]

_Tensor = torch.Tensor
BENEATH_MODES = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
"""What an operator must not meet in order to run as if there were no mode."""
_TENSORS = (torch.Tensor, nn.Parameter)
_NUMBERS = (int, bool, numpy.int64, numpy.int32)
_PLAIN = (
    float,
    complex,
    numpy.float64,
    numpy.float32,
    numpy.bool_,
    str,
    type(None),
    slice,
    EllipsisType,
    torch.dtype,
    torch.Generator,
)
_CONTAINERS = (tuple, list, torch.Size)
_SIZE_STAYS = frozenset(
    {_Tensor.__setitem__, _Tensor.item, _Tensor.copy_, _Tensor.fill_, _Tensor.zero_, _Tensor.add_, _Tensor.mul_}
)


def is_work_of_the_host(func: Any, args: Any, kwargs: dict[str, Any] | None, any_size: bool) -> bool:
    """Whether all tensors are real ones of the host, and what comes of them is small, in place, or a view.

    With `any_size` results may be large: data code runs.
    """
    found = _Found()
    if not found.in_all(args) or not found.tensors:
        return False
    if kwargs and ("device" in kwargs or "pin_memory" in kwargs or not found.in_all(kwargs.values())):
        return False
    if any_size or found.bound <= LARGE or func in _SIZE_STAYS:
        return True
    return func is _Tensor.__getitem__ and found.tensors == 1 and type(args[1]) is not list


class _Found:
    """The tensors and numbers among a call's arguments."""

    __slots__ = ("bound", "tensors")

    def __init__(self) -> None:
        self.tensors = 0
        self.bound = 1
        """No result has more elements: outer products and repeats have that many."""

    def in_all(self, values: Iterable[Any]) -> bool:
        """Whether they are all of the host and of known kinds."""
        for value in values:
            kind = type(value)
            if kind in _TENSORS:
                if value.layout is not torch.strided or value.is_meta:
                    return False
                self.tensors += 1
                self._multiply(value.numel())
            elif kind in _NUMBERS:
                self._multiply(value)
            elif kind in _CONTAINERS:
                if not self.in_all(value):
                    return False
            elif kind is numpy.ndarray:
                self._multiply(value.size)
            elif kind not in _PLAIN:
                return False
        return True

    def _multiply(self, number: int) -> None:
        if self.bound <= LARGE:
            self.bound *= abs(int(number)) or 1
