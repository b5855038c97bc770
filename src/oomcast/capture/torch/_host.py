"""Which host tensors are too large to be real."""

from __future__ import annotations

import math
from typing import Any

import torch

__all__ = ["is_large", "is_large_factory", "may_expand"]

_LIMIT = 4 << 20
"""Bytes. Beyond it batches and parameters begin; values that code reads are in smaller ones."""

_aten = torch.ops.aten
_SIZE_AT = {
    _aten.empty.memory_format: 0,
    _aten.empty_strided.default: 0,
    _aten.zeros.default: 0,
    _aten.ones.default: 0,
    _aten.full.default: 0,
    _aten.rand.default: 0,
    _aten.rand.generator: 0,
    _aten.randn.default: 0,
    _aten.randn.generator: 0,
    _aten.randint.default: 1,
    _aten.randint.generator: 1,
    _aten.randint.low: 2,
    _aten.randint.low_generator: 2,
}
"""Factory → position of its size."""


def is_large_factory(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    place = _SIZE_AT.get(func)
    if place is None:
        return False
    dtype = kwargs.get("dtype") or (torch.int64 if place else torch.get_default_dtype())
    return math.prod(args[place]) * dtype.itemsize > _LIMIT


def is_large(out: Any) -> bool:
    tensors = out if isinstance(out, (tuple, list)) else (out,)
    return any(isinstance(t, torch.Tensor) and t.numel() * t.element_size() > _LIMIT for t in tensors)


def may_expand(args: Any) -> bool:
    """Whether an operator on these small tensors could make a large one (outer products, repeats, clones of views)."""
    bound = 1
    for arg in args:
        if isinstance(arg, torch.Tensor):
            bound *= max(arg.numel(), 1)
        elif isinstance(arg, (tuple, list)) and len(arg) < 16:
            for item in arg:
                if isinstance(item, torch.Tensor):
                    bound *= max(item.numel(), 1)
                elif isinstance(item, int) and item > 0:
                    bound *= item
    return bound > _LIMIT
