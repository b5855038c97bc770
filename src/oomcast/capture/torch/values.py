"""The values of small tensors on the virtual GPU, where they can be known.

Model code reads values: masks (`mask.all()`), lengths (`lengths.max().item()`), drop-path rates. A fake tensor has
none. So where all inputs of an operator are known and small, it also runs for real on the host, and the result goes
with the fake tensor. Where a value is read that is not known, a stand-in is given, and that is stated as an
assumption.
"""

from __future__ import annotations

import ast
import functools
import linecache
import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ...syntax import syntax_tree
from ...trace import Phase, TraceBuilder
from .bounds import largest_value, note_bounds
from .devices import HOST

__all__ = ["Values"]

_FLOAT_LIMIT = 4096
_INTEGER_LIMIT = 1 << 20
_PATIENCE = 500
"""Reads of unknown values by one line after which they change, so that a loop that waits for a small loss ends."""
_LEAVES_A_LOOP = (ast.Break, ast.Return)
_aten = torch.ops.aten
_TRUE_WHEN_UNKNOWN = {_aten.all.default, _aten.all.dim, _aten.all.dims, _aten._is_all_true.default}
_ANY = {_aten.any.default, _aten.any.dim, _aten.any.dims}
_COMPARISONS: dict[Any, Callable[[Any, Any], bool]] = {
    getattr(getattr(_aten, name), overload): getattr(operator, name)
    for name in ("lt", "le", "gt", "ge")
    for overload in ("Scalar", "Tensor")
}
_ABSORBING = {
    overload: value
    for overloads, value in (
        ((_aten.bitwise_or.Tensor, _aten.logical_or.default), True),
        ((_aten.bitwise_and.Tensor, _aten.logical_and.default), False),
    )
    for overload in overloads
}
"""Operator → what, on one side, makes it the result whatever stands on the other."""
_LEAVES = (ast.Raise, ast.Break, ast.Return, ast.Continue)


class Values:
    """Known values, kept on the fake tensors themselves; what writes to a storage unknowably makes it unknown."""

    def __init__(self, ledger: TraceBuilder) -> None:
        self._ledger = ledger
        self._known_storages: set[int] = set()
        self.last_stand_in = ""
        """Where an unknown value was read the last time, as ` at FILE:LINE`."""
        self._reads: dict[str, int] = {}
        """How often an unknown value was read, by the line that read it."""

    @staticmethod
    def small_enough(numel: int, dtype: torch.dtype) -> bool:
        return numel <= (_FLOAT_LIMIT if dtype.is_floating_point or dtype.is_complex else _INTEGER_LIMIT)

    def of(self, tensor: Any) -> torch.Tensor | None:
        """The real tensor behind a fake one, a real tensor itself, or None."""
        if not isinstance(tensor, FakeTensor):
            return tensor if isinstance(tensor, torch.Tensor) else None
        value = tensor.__dict__.get("_oomcast_value")
        if value is None or tensor.untyped_storage()._cdata not in self._known_storages:
            return None
        return value

    def know(self, fake: FakeTensor, value: torch.Tensor) -> None:
        # Sparse tensors have no storage of their own; their parts are known by themselves.
        if fake.layout is torch.strided and self.small_enough(value.numel(), value.dtype):
            fake._oomcast_value = value  # type: ignore[attr-defined]
            self._known_storages.add(fake.untyped_storage()._cdata)

    def forget_storage(self, key: int) -> None:
        self._known_storages.discard(key)

    @property
    def none_known(self) -> bool:
        return not self._known_storages

    def follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """After an operator ran on fakes: run it on the known values too, or drop what it overwrote."""
        tensors = list(_tensors((args, kwargs)))
        if not tensors:
            self._construct(func, args, kwargs, out)
            return
        if func in _COMPARISONS:
            self._note_comparison(func, args, out)
        note_bounds(func, args, out, self.of)
        if func in _ABSORBING and (absorbed := self._absorbed(func, args, out)) is not None:
            self.know(out, absorbed)
            return
        mutable = func._schema.is_mutable
        if not mutable and isinstance(tensors[0], FakeTensor) and "_oomcast_value" not in tensors[0].__dict__:
            return
        values = [self.of(tensor) for tensor in tensors]
        deterministic = torch.Tag.nondeterministic_seeded not in func.tags
        results = list(_tensors(out))
        if (
            deterministic
            and all(value is not None for value in values)
            and all(self.small_enough(result.numel(), result.dtype) for result in results)
        ):
            real = self._on_host(func, _replace((args, kwargs), iter(values)))
            if real is not None:
                for fake, value in zip(results, real, strict=False):
                    if isinstance(fake, FakeTensor):
                        self.know(fake, value)
                return
        if mutable:
            for tensor in _written(func, args, kwargs):
                if isinstance(tensor, FakeTensor) and "_oomcast_value" in tensor.__dict__:
                    self._known_storages.discard(tensor.untyped_storage()._cdata)

    @staticmethod
    def _on_host(func: Any, call: Any) -> list[torch.Tensor] | None:
        """The results on known values; None where the host lacks the kernel (`histc` of integers, float8 sums)."""
        args, kwargs = call
        if "device" in kwargs:
            kwargs["device"] = HOST
        try:
            return list(_tensors(func(*args, **kwargs)))
        except NotImplementedError:
            return None

    def _construct(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if isinstance(out, FakeTensor) and func in _KNOWN_FACTORIES and self.small_enough(out.numel(), out.dtype):
            self.know(out, func(*args, **{**kwargs, "device": HOST}))

    def read(self, tensor: torch.Tensor, where: str) -> Any:
        """`.item()`: the value, or a stand-in that is stated."""
        value = self.of(tensor)
        if value is not None:
            return value.item()
        stand_in: Any
        self.last_stand_in = where
        reads = self._reads[where] = self._reads.get(where, 0) + 1
        falling = 1.0 if reads < _PATIENCE else 0.5 ** min(reads - _PATIENCE, 1000)
        if tensor.dtype == torch.bool:
            made_by = tensor.__dict__.get("_oomcast_made_by")
            if "_oomcast_compared" in tensor.__dict__:
                stand_in = tensor.__dict__["_oomcast_compared"](falling)
            else:
                stand_in = made_by in _TRUE_WHEN_UNKNOWN or (
                    made_by in _ANY and goes_on_where_any(where.removeprefix(" at "))
                )
            passing = what_passes(where.removeprefix(" at "))
            stand_in = stand_in if passing is None else passing
            # However small the stand-in becomes, some loops wait for less: those of every step must end.
            if reads % _PATIENCE == 0 and ends_a_loop(where.removeprefix(" at ")):
                stand_in = not stand_in
        elif tensor.dtype.is_floating_point:
            stand_in = falling
        elif tensor.dtype.is_complex:
            stand_in = complex(1.0)
        else:
            stand_in = self.integer_for(tensor)
            self._ledger.assume(
                f"an integer that depends on data was read{where}: taken as {stand_in}", about_data=True
            )
        # While a model is built, initialisers look whether a draw on the host is to be repeated: no memory hangs on it.
        redraw = self._ledger.phase is Phase.BUILD and tensor.fake_device.index is None  # type: ignore[attr-defined]
        if tensor.dtype == torch.bool and not redraw:
            self._ledger.assume(
                f"a condition that depends on data was read{where}: taken as {stand_in}", about_data=True
            )
        return stand_in

    @staticmethod
    def integer_for(tensor: torch.Tensor) -> int:
        """A stand-in for integers that are not known: of a maximum the largest that it can be, since sizes are made of
        it; else 1, or 0 where no index is larger."""
        bound = largest_value(tensor)
        if bound is None:
            return 1
        largest, is_maximum = bound
        return largest if is_maximum else min(1, largest)

    def _note_comparison(self, func: Any, args: Any, out: Any) -> None:
        """`loss < best` is what `loss.item() < best` is: the stand-in on one side, what is known on the other."""
        if not isinstance(out, FakeTensor) or out.numel() != 1:
            return
        sides: list[Any] = [arg if value is None else value.item() for arg in args[:2] for value in (self.of(arg),)]
        unknown = [isinstance(side, torch.Tensor) for side in sides]
        if sum(unknown) != 1:
            return
        compare, known = _COMPARISONS[func], sides[unknown.index(False)]
        is_left, is_float = unknown[0], sides[unknown.index(True)].dtype.is_floating_point

        def compared(falling: float) -> bool:
            stand_in = falling if is_float else 1
            return bool(compare(stand_in, known) if is_left else compare(known, stand_in))

        out._oomcast_compared = compared  # type: ignore[attr-defined]

    def _absorbed(self, func: Any, args: Any, out: Any) -> torch.Tensor | None:
        """`x or True` is True whatever x is: the stop condition of a generation, by length or by a token, holds at that
        length though no token is known."""
        if not isinstance(out, FakeTensor) or not self.small_enough(out.numel(), out.dtype):
            return None
        values = [self.of(side) if isinstance(side, torch.Tensor) else None for side in args[:2]]
        absorbing = _ABSORBING[func]
        for value in values:
            if value is None or None not in values:
                continue
            decides = not value.any() if not absorbing else value.dtype == torch.bool and value.all()
            if decides:
                return torch.full(tuple(out.shape), absorbing, dtype=out.dtype, device=HOST)
        return None

    def note_origin(self, func: Any, out: Any) -> None:
        if (func in _TRUE_WHEN_UNKNOWN or func in _ANY) and isinstance(out, FakeTensor):
            out._oomcast_made_by = func  # type: ignore[attr-defined]


_KNOWN_FACTORIES = {
    _aten.zeros.default,
    _aten.ones.default,
    _aten.full.default,
    _aten.arange.default,
    _aten.arange.start,
    _aten.arange.start_step,
    _aten.linspace.default,
    _aten.eye.default,
    _aten.eye.m,
    _aten.scalar_tensor.default,
}


def goes_on_where_any(line: str) -> bool:
    """Whether the `if` at `file:number` leads to more work where something is found: the tokens of an expert, boxes on
    an object. Then it is taken as found, so that this work is counted; where it raises or leaves, as not found."""
    path, _, number = line.rpartition(":")
    return number.isdigit() and int(number) in _lines_of_work(path)


@functools.lru_cache
def _lines_of_work(path: str) -> frozenset[int]:
    lines: set[int] = set()
    for node in ast.walk(_tree(path)):
        if not isinstance(node, ast.If):
            continue
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        if any(isinstance(last, _LEAVES) for last in node.body) == negated:
            lines.update(range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1))
    return frozenset(lines)


def _tree(path: str) -> ast.AST:
    try:
        return syntax_tree("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def what_passes(line: str) -> bool | None:
    """What the condition at `file:number` must be for a check (`assert …`, `if …: raise`) to pass; None elsewhere."""
    path, _, number = line.rpartition(":")
    return _checks(path).get(int(number)) if number.isdigit() else None


@functools.lru_cache
def _checks(path: str) -> dict[int, bool]:
    found = {}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Assert):
            passing = True
        elif isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise):
            passing = False
        else:
            continue
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        inner = node.test.operand if isinstance(node.test, ast.UnaryOp) and negated else node.test
        if not any(isinstance(part, ast.Not) for part in ast.walk(inner)):  # else it takes more to know
            lines = range(node.test.lineno, (node.test.end_lineno or node.test.lineno) + 1)
            found.update(dict.fromkeys(lines, passing != negated))
    return found


def ends_a_loop(line: str) -> bool:
    """Whether the condition at `file:number` decides if a loop goes on; any other is a check, which passes."""
    path, _, number = line.rpartition(":")
    return number.isdigit() and int(number) in _lines_that_end_loops(path)


@functools.lru_cache
def _lines_that_end_loops(path: str) -> frozenset[int]:
    conditions: list[ast.AST] = []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.While):
            conditions.append(node.test)
        if isinstance(node, (ast.While, ast.For)):
            conditions.extend(
                inner.test
                for inner in ast.walk(node)
                if isinstance(inner, ast.If) and any(isinstance(last, _LEAVES_A_LOOP) for last in inner.body)
            )
    return frozenset(
        line
        for node in conditions
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)  # type: ignore[attr-defined]
    )


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> Iterable[torch.Tensor]:
    """The tensors that an operator writes to; what it only reads keeps its values."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from _tensors(args[place] if place < len(args) else kwargs.get(argument.name))


def _tensors(tree: Any) -> Iterable[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from _tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from _tensors(item)


def _replace(tree: Any, values: Any) -> Any:
    if isinstance(tree, torch.Tensor):
        return next(values)
    if isinstance(tree, (tuple, list)):
        return type(tree)(_replace(item, values) for item in tree)
    if isinstance(tree, dict):
        return {key: _replace(item, values) for key, item in tree.items()}
    return tree
