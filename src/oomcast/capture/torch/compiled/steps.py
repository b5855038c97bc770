"""A plan followed on the virtual GPU, step by step.

Every step is looked at before the first one is taken, also those of a plan that was read from a file: an operator is
one that torch knows and that works on tensors, a dtype is a dtype, a name is one that the plan has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch._inductor.select_algorithm import extern_kernels

from .plan import Plan

__all__ = ["Host", "can_be_followed", "followed"]

_Values = list[Any]
_Step = Callable[[_Values], Any]
_GONE = object()
"""In the place of a name that holds nothing."""


class Host(Protocol):
    """What the steps happen on."""

    def at_buffer(self, name: str) -> None:
        """What follows is for this buffer."""

    def empty(self, where: str, size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor: ...

    def device(self, kind: str, index: int | None) -> torch.device: ...

    def launch(self, kernel: str) -> None: ...


def can_be_followed(plan: Plan) -> bool:
    """Whether each of its steps is one."""
    try:
        _read(plan, None)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return False
    return True


def _read(plan: Plan, host: Host | None) -> tuple[list[_Step], _Step]:
    reader = _Reader(plan, host)
    *steps, last = (reader.step(step) for step in plan.steps)
    if plan.steps[-1][0] != "return" or any(step[0] == "return" for step in plan.steps[:-1]):
        raise ValueError("a plan returns at its end, and there alone")
    return steps, last


def followed(plan: Plan, host: Host) -> Callable[[list[Any]], Any]:
    """`call(args)` of a plan that can be followed; it empties the list that it is given."""
    steps, last = _read(plan, host)

    def call(args: list[Any]) -> Any:
        values: _Values = [_GONE] * len(plan.slots)
        values.append(args)
        for take in steps:
            take(values)
        result = last(values)
        for place in range(len(plan.slots)):  # in the order in which a function lets go of its names
            values[place] = _GONE
        return result

    return call


class _Reader:
    def __init__(self, plan: Plan, host: Host | None) -> None:
        self._plan = plan
        self._host: Any = host  # None: the steps are not to be taken

    def step(self, step: Sequence[Any]) -> _Step:
        kind, *given = step
        if kind == "set":
            slot, value, label = given
            return self._set(self._slot(slot), self.value(value), _of_type(str, label))
        if kind == "drop":
            (slots,) = given
            return _drop([self._slot(slot) for slot in slots])
        if kind == "unpack":
            (slots,) = given
            return _unpack([self._slot(slot) for slot in slots])
        if kind == "launch":
            (kernel,) = given
            if kernel not in self._plan.kernels:
                raise ValueError("a kernel that the plan does not have")
            return lambda values: self._host.launch(kernel)
        if kind in ("do", "return"):
            (value,) = given
            return self.value(value)
        raise ValueError(f"a step of no kind: {kind}")

    def _set(self, slot: int, value: _Step, label: str) -> _Step:
        def take(values: _Values) -> None:
            if label:
                self._host.at_buffer(label)
            values[slot] = value(values)

        return take

    def value(self, value: Any) -> _Step:
        if value is None or isinstance(value, (bool, int, float, str)):
            return lambda values: value
        kind, *given = _of_type(list, value)
        kinds: dict[str, Callable[..., _Step]] = {
            "name": self._name,
            "tuple": lambda items: self._many(items, tuple),
            "list": lambda items: self._many(items, list),
            "item": self._item,
            "torch": _constant_of_torch,
            "device": self._device,
            "empty": self._empty,
            "view": self._view,
            "extern": self._extern,
            "op": self._operator,
        }
        return kinds[kind](*given)

    def _slot(self, slot: Any) -> int:
        if type(slot) is not int or not 0 <= slot < len(self._plan.slots):
            raise ValueError("a name that the plan does not have")
        return slot

    def _name(self, slot: Any) -> _Step:
        place = self._slot(slot)
        return lambda values: values[place]

    def _many(self, items: Any, kind: type) -> _Step:
        if all(item is None or isinstance(item, (bool, int, float, str)) for item in _of_type(list, items)):
            constant = kind(items)
            return (lambda values: constant) if kind is tuple else (lambda values: list(constant))
        each = [self.value(item) for item in items]
        return lambda values: kind(item(values) for item in each)

    def _item(self, value: Any, index: Any) -> _Step:
        of, place = self.value(value), _of_type(int, index)
        return lambda values: of(values)[place]

    def _device(self, kind: Any, index: Any) -> _Step:
        form = _of_type(str, kind), index if index is None else _of_type(int, index)
        return lambda values: self._host.device(*form)

    def _empty(self, where: Any, size: Any, stride: Any, dtype: Any) -> _Step:
        if where not in ("gpu", "host", "pinned"):
            raise ValueError("no such place")
        form = (self.value(size), self.value(stride), self.value(dtype))
        return lambda values: self._host.empty(where, *(part(values) for part in form))

    def _view(self, tensor: Any, size: Any, stride: Any, offset: Any) -> _Step:
        form = (self.value(tensor), self.value(size), self.value(stride), self.value(offset))

        def viewed(values: _Values) -> torch.Tensor:
            of, size, stride, offset = (part(values) for part in form)
            return torch.as_strided(of, size, stride, of.storage_offset() + offset)

        return viewed

    def _extern(self, name: Any, args: Any, options: Any) -> _Step:
        kernel = vars(extern_kernels).get(_of_type(str, name))
        if not callable(kernel):
            raise ValueError(f"no kernel of torch's: {name}")
        return self._call(kernel, args, options)

    def _operator(self, name: Any, args: Any, options: Any) -> _Step:
        return self._call(_operator_of(name), args, options)

    def _call(self, function: Callable[..., Any], args: Any, options: Any) -> _Step:
        given = [self.value(argument) for argument in _of_type(list, args)]
        named = {_of_type(str, key): self.value(option) for key, option in _of_type(dict, options).items()}
        return lambda values: function(
            *(argument(values) for argument in given), **{key: option(values) for key, option in named.items()}
        )


def _drop(slots: list[int]) -> _Step:
    def take(values: _Values) -> None:
        for slot in slots:
            values[slot] = _GONE

    return take


def _unpack(slots: list[int]) -> _Step:
    def take(values: _Values) -> None:
        args = values.pop()
        for slot, value in zip(slots, args, strict=True):
            values[slot] = value
        args.clear()

    return take


def _of_type(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise ValueError(f"not of {kind.__name__}")
    return value


def _constant_of_torch(name: Any) -> _Step:
    constant = getattr(torch, _of_type(str, name), None)
    if not isinstance(constant, (torch.dtype, torch.layout, torch.memory_format)):
        raise ValueError(f"no dtype, layout or memory format: {name}")
    return lambda values: constant


_OPERATOR = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\.[A-Za-z_]\w*")


def _operator_of(name: Any) -> Any:
    """Only such as work on tensors: a few of torch's operators open files or print."""
    if not _OPERATOR.fullmatch(_of_type(str, name)):
        raise ValueError(f"no name of an operator: {name}")
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    if not isinstance(found, torch._ops.OpOverload):
        raise ValueError(f"no operator: {name}")
    if not any("Tensor" in str(argument.type) for argument in found._schema.arguments):
        raise ValueError(f"an operator that works on no tensor: {name}")
    return found
