"""What is known of integers whose values are not: how many differ at most, and how large they can be.

The indices of an argmax over ten classes are ten different ones; the graphs that nodes were picked from are no more
than there were (`batch[perm].max() + 1`). Such bounds go with a fake tensor through the operators that keep them, so
that sizes which a model takes from data are the largest that the data allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["different_values", "largest_value", "note_bounds"]

_aten = torch.ops.aten
_PLACES: dict[Any, int | None] = {
    _aten.argmax.default: None,
    _aten.argmin.default: None,
    _aten.max.dim: 1,
    _aten.min.dim: 1,
    _aten.topk.default: 1,
}
"""Operators that tell places along a dimension, with the output that has them."""
_SAME_VALUES = {
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.clone.default,
    _aten._to_copy.default,
    _aten.detach.default,
    _aten.alias.default,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.unsqueeze.default,
    _aten.t.default,
    _aten.transpose.int,
    _aten.permute.default,
    _aten.slice.Tensor,
    _aten.select.int,
    _aten.expand.default,
}
_PICKED = {
    _aten.index.Tensor,
    _aten.index_select.default,
    _aten.gather.default,
    _aten.masked_select.default,
    _aten.take.default,
    _aten.flip.default,
    _aten.repeat.default,
    _aten.repeat_interleave.self_int,
    _aten.repeat_interleave.self_Tensor,
}
"""Operators whose result has values of their first argument alone."""
_LARGEST = {_aten.max.default, _aten.amax.default}
_SCATTERED = {_aten.scatter.src, _aten.scatter_.src}
_SUMS = {_aten.add.Tensor: 1, _aten.add.Scalar: 1, _aten.sub.Tensor: -1, _aten.sub.Scalar: -1}


def different_values(tensor: torch.Tensor) -> int | None:
    """How many different values it has at most, where that is less than its elements."""
    bound = tensor.__dict__.get("_oomcast_different")
    return None if bound is None else min(int(bound), tensor.numel())


def largest_value(tensor: torch.Tensor) -> tuple[int, bool] | None:
    """The largest that its integers can be, and whether they are a maximum of such; None where nothing is known."""
    bound: tuple[int, bool] | None = tensor.__dict__.get("_oomcast_largest")
    return bound


def note_bounds(func: Any, args: Any, out: Any, values_of: Callable[[Any], torch.Tensor | None]) -> None:
    """After an operator; `values_of` tells those of a tensor, where they are known."""
    if func in _PLACES:
        _note_places(func, args, out)
    elif not isinstance(out, FakeTensor):
        return
    elif func in _SCATTERED:
        _set_largest(out, _largest_scattered(args, values_of))
    elif func._schema.is_mutable:
        _set_largest(out, None)
    elif func in _SAME_VALUES:
        for name in ("_oomcast_different", "_oomcast_largest"):
            if name in args[0].__dict__:
                setattr(out, name, args[0].__dict__[name])
    elif func in _PICKED or func in _LARGEST:
        _set_largest(out, _largest_of(args[0], values_of), func in _LARGEST)
    elif func in _SUMS and "_oomcast_largest" in getattr(args[0], "__dict__", {}) and type(args[1]) is int:
        largest, is_maximum = args[0].__dict__["_oomcast_largest"]
        _set_largest(out, largest + _SUMS[func] * args[1], is_maximum)


def _set_largest(tensor: FakeTensor, largest: int | None, is_maximum: bool = False) -> None:
    if largest is not None:
        tensor._oomcast_largest = largest, is_maximum  # type: ignore[attr-defined]
    else:
        tensor.__dict__.pop("_oomcast_largest", None)


def _largest_scattered(args: Any, values_of: Callable[[Any], torch.Tensor | None]) -> int | None:
    """What is scattered to every place leaves nothing of what was there."""
    target, _, index, source = args[:4]
    scattered, places = _largest_of(source, values_of), values_of(index)
    if scattered is None or (places is not None and target.dim() == 1 and len(places.unique()) == target.numel()):
        return scattered
    was = _largest_of(target, values_of)
    return None if was is None else max(was, scattered)


def _largest_of(tensor: Any, values_of: Callable[[Any], torch.Tensor | None]) -> int | None:
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype is torch.bool:
        return None
    known = values_of(tensor)
    if known is not None:
        return int(known.max()) if known.numel() else None
    bound = largest_value(tensor)
    return None if bound is None else bound[0]


def _note_places(func: Any, args: Any, out: Any) -> None:
    which, source = _PLACES[func], args[0]
    position = 2 if func is _aten.topk.default else 1
    dim = args[position] if len(args) > position else None
    made = out if which is None else out[which]
    if isinstance(made, FakeTensor) and dim is not None and source.dim():
        made._oomcast_different = source.shape[dim]  # type: ignore[attr-defined]
        _set_largest(made, source.shape[dim] - 1)
