"""Outputs of operators as fake tensors, remembered by the metadata of their inputs.

torch keeps such a cache too, but its key covers everything that a compiler might ask about. Here shape, stride, dtype
and device decide, so a key costs a fraction, and a training step is mostly repetition: layers alike, steps alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, ValuesView
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

__all__ = ["LARGE", "FakeKernels", "keep_device", "may_expand", "size_if_expanded", "size_if_large"]

# -------- Which host tensors are too large to be real


LARGE = 4 << 20
"""Bytes. Beyond it batches and parameters begin; values that code reads are in smaller ones."""
_EXPANSION = 8
"""Times: bytes turned into doubles."""

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


def size_if_large(func: Any, args: Any, kwargs: dict[str, Any]) -> int:
    """The bytes of what a factory makes, if it is large, else 0."""
    place = _SIZE_AT.get(func)
    if place is None:
        return 0
    dtype = kwargs.get("dtype") or (torch.int64 if place else torch.get_default_dtype())
    size = math.prod(args[place]) * dtype.itemsize
    return size if size > LARGE else 0


def size_if_expanded(out: Any, args: Any) -> int:
    """The bytes of what an operator made, if it is something large of much smaller tensors, else 0.

    What is as large as real inputs, or a few times larger (bytes as floats), is the work of data code and stays real.
    """
    most = max(LARGE, _EXPANSION * sum(map(_nbytes, args)))
    largest = max(map(_nbytes, out if isinstance(out, (tuple, list)) else (out,)), default=0)
    return largest if largest > most else 0


def _nbytes(value: Any) -> int:
    """Of the memory behind a tensor or a list of them; a view that repeats its elements has little."""
    if isinstance(value, torch.Tensor):
        return min(value.numel() * value.element_size(), value.untyped_storage().nbytes())
    return sum(map(_nbytes, value)) if isinstance(value, (tuple, list)) else 0


def may_expand(func: Any, args: Any) -> bool:
    """Whether an operator on these tensors could make a large one (outer products, repeats, clones of views)."""
    if _makes_nothing_larger(func):
        return False
    bound = 1
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg.layout is not torch.strided:
                return False
            bound *= max(arg.numel(), 1)
        elif isinstance(arg, (tuple, list)) and len(arg) < 16:
            for item in arg:
                if isinstance(item, torch.Tensor):
                    bound *= max(item.numel(), 1)
                elif isinstance(item, int) and item > 0:
                    bound *= item
    return bound > LARGE


@cache
def _makes_nothing_larger(func: Any) -> bool:
    """Known of an operator, whatever it is called with; torch's tags are slow to ask."""
    return func._schema.is_mutable or any(tag in func.tags for tag in _BY_VALUE) or "sparse" in func._schema.name


_BY_VALUE = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
_NEVER = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_Maker = Callable[[FakeTensorMode, Any], Any]
"""Makes an output anew: from the mode and the operator's arguments."""


class FakeKernels:
    """Runs operators on fake tensors through torch's fake kernels, once for every kind of input."""

    def __init__(self, mode: FakeTensorMode, plain: Mapping[Any, Callable[..., Any]]) -> None:
        """`plain`: operator → callable(func, args, kwargs), asked instead of torch's."""
        self.mode = mode
        self._plain = plain
        self._known: dict[Any, _Maker] = {}
        self._refused: set[Any] = set()

    def __call__(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func in self._refused:
            return self.mode.dispatch(func, types, args, kwargs)
        try:
            key = _key(func, args, kwargs)
        except RuntimeError:  # a tensor without strides
            return self.mode.dispatch(func, types, args, kwargs)
        maker = self._known.get(key) if key is not None else None
        if maker is not None:
            return maker(self.mode, args)
        before = _forms(args)
        plain = self._plain.get(func)
        if plain is None:
            out = self._by_kind(func, types, args, kwargs) if is_foreach(func) else NotImplemented
            if out is NotImplemented:
                out = self.mode.dispatch(func, types, args, kwargs)
        else:
            with self.mode:
                out = plain(func, args, kwargs)
        keep_device(args, kwargs, out)
        if key is not None:
            learned = _learn(func, args, kwargs, before, out)
            if learned is None:
                self._refused.add(func)
            else:
                self._known[key] = learned
        return out

    def _by_kind(self, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """A foreach operator does the same for each place of its lists: it runs for one place of each kind.

        `NotImplemented` where its outputs cannot be told from those.
        """
        kinds = _kinds_of_places(args, kwargs)
        if kinds is None or len(set(kinds)) == len(kinds):
            return NotImplemented
        first: dict[Any, int] = {}
        for place, kind in enumerate(kinds):
            first.setdefault(kind, place)
        few = tuple(type(arg)(arg[place] for place in first.values()) if _is_list(arg) else arg for arg in args)
        out = self.mode.dispatch(func, types, few, kwargs)
        if out is None:
            return None
        inputs = {tensor.untyped_storage()._cdata for tensor in _tensors(few)}
        makers = {}
        for kind, made in zip(first, out, strict=True):  # type: ignore[call-overload]
            maker = _maker_of(made, (), lambda: inputs)
            if maker is None:
                return NotImplemented
            makers[kind] = maker
        return [makers[kind](self.mode, ()) for kind in kinds]


def is_foreach(func: Any) -> bool:
    """Whether an operator of torch works through lists of tensors, place by place."""
    return func.namespace == "aten" and func._schema.name.startswith("aten::_foreach_")


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _kinds_of_places(args: Any, kwargs: dict[str, Any]) -> list[Any] | None:
    """What the fake kernel of a foreach operator looks at, for each place of its lists; None where it is another."""
    lists = [arg for arg in args if _is_list(arg)]
    if not lists or len({len(items) for items in lists}) != 1:
        return None
    others = [value for value in (*args, *kwargs.values()) if not _is_list(value)]
    # A tensor of one scalar for each place, or a list among the keywords: not taken apart.
    if len(others) + len(lists) != len(args) + len(kwargs):
        return None
    if any(isinstance(value, torch.Tensor) and value.dim() for value in others):
        return None
    kinds = []
    for place in zip(*lists, strict=True):
        parts: list[Any] = []
        for item in place:
            if isinstance(item, FakeTensor):
                parts += (item.size(), item.stride(), item.dtype, item.storage_offset(), item.fake_device)
            elif isinstance(item, (bool, int, float, complex)):
                parts.append(type(item))
            else:
                return None
        kinds.append(tuple(parts))
    return kinds


def keep_device(args: Any, kwargs: dict[str, Any], out: Any) -> None:
    """torch runs what has no fake kernel for real, on the host: its outputs belong where the inputs are."""
    if "device" in kwargs:
        return
    devices = {tensor.fake_device for tensor in _tensors((args, kwargs.values())) if isinstance(tensor, FakeTensor)}
    if len(devices) != 1 or (device := devices.pop()).index is None:
        return
    for tensor in _tensors((out,)):
        if isinstance(tensor, FakeTensor) and tensor.fake_device.index is None and not tensor.is_meta:
            tensor.fake_device = device


def _learn(func: Any, args: Any, kwargs: dict[str, Any], before: Any, out: Any) -> _Maker | None:
    """How to make this output again without asking torch; None where it cannot be told from the metadata."""
    if any(tag in func.tags for tag in _NEVER):
        return None
    if func._schema.is_mutable:
        # In place: nothing is made, provided that the operator left the form of its arguments alone.
        if _forms(args) != before or any(isinstance(value, torch.Tensor) for value in kwargs.values()):
            return None
        if out is None:
            return lambda mode, given: None
        return (lambda mode, given: given[0]) if out is args[0] else None

    @cache
    def inputs() -> set[int]:
        """Their storages, read once: a fused operator has thousands of inputs and as many outputs."""
        return {tensor.untyped_storage()._cdata for tensor in _tensors((args, kwargs.values()))}

    if isinstance(out, (tuple, list)):
        makers = [_maker_of(item, args, inputs) for item in out]
        if any(maker is None for maker in makers):
            return None
        container = list if type(out) is list else tuple
        return lambda mode, given: container(maker(mode, given) for maker in makers)  # type: ignore[misc]
    return _maker_of(out, args, inputs)


def _maker_of(tensor: Any, args: Any, inputs: Callable[[], set[int]]) -> _Maker | None:
    if tensor is None:
        return lambda mode, given: None
    if not isinstance(tensor, FakeTensor) or tensor.is_sparse or tensor.is_conj() or tensor.is_neg():
        return None
    shape, stride, offset = tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    dtype, device = tensor.dtype, tensor.fake_device
    key = tensor.untyped_storage()._cdata
    first = args[0] if args else None
    if isinstance(first, FakeTensor) and first.untyped_storage()._cdata == key:
        if first is tensor or first.dtype != dtype:
            return None

        def view(mode: FakeTensorMode, given: Any) -> FakeTensor:
            # Views share the storage of the first argument (so does `_unsafe_view`, which does not say so).
            meta = torch.empty(0, dtype=dtype, device="meta")
            meta.set_(given[0].untyped_storage(), offset, shape, stride)
            return FakeTensor(mode, meta, device)

        return view
    if offset or key in inputs():
        return None
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if tensor.untyped_storage().nbytes() != (extent * tensor.element_size() if tensor.numel() else 0):
        return None

    def new(mode: FakeTensorMode, given: Any) -> FakeTensor:
        return FakeTensor(mode, torch.empty_strided(shape, stride, dtype=dtype, device="meta"), device)

    return new


def _key(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """None where an input cannot be described, or where there is no tensor among them (a factory)."""
    parts: list[Any] = [func]
    found = _describe(args, parts)
    for name, value in kwargs.items():
        parts.append(name)
        found |= _describe((value,), parts)
    if not found:
        return None
    key = tuple(parts)
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _describe(values: Any, parts: list[Any]) -> bool:
    found = False
    for value in values:
        if isinstance(value, FakeTensor):
            found = True
            parts += (tuple(value.shape), value.stride(), value.dtype, value.storage_offset(), value.fake_device)
        elif isinstance(value, (list, tuple)):
            parts.append(len(value))
            found |= _describe(value, parts)
        else:
            # 1, 1.0 and True are equal to a dictionary, but not to an operator.
            parts += (type(value), value)
    return found


def _forms(args: Any) -> list[Any]:
    return [
        (tensor.untyped_storage()._cdata, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        for tensor in _tensors(args)
    ]


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple, ValuesView)):
            yield from _tensors(value)
