"""While a job's code runs: weights are not made, a GPU seems to be there, and calls of operators are noted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import mxnet as mx
from mxnet.gluon.parameter import Parameter, ParameterDict

__all__ = ["Calls", "virtual"]


@dataclass
class Calls:
    """What was composed: in imperative code, these are the calls that run."""

    order: dict[str, list[int]] = field(default_factory=dict)
    """Operator's name → when operators of that name were called."""
    views: set[str] = field(default_factory=set)
    """Names of reshapings by the method `reshape`, which copies nothing when it is called on an array."""
    count: int = 0

    def note(self, name: str) -> None:
        self.order.setdefault(name, []).append(self.count)
        self.count += 1


@contextlib.contextmanager
def virtual(*, with_weights: bool) -> Iterator[Calls]:
    """`with_weights`: let initialisers run, for code that needs weights' values."""
    calls = Calls()
    with contextlib.ExitStack() as stack:

        def patch(owner: Any, name: str, new: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, new))

        for owner in (mx, mx.context):
            patch(owner, "gpu", lambda device_id=0: mx.cpu(device_id))
        patch(mx.context, "num_gpus", lambda: 1)
        patch(mx.name.NameManager, "get", _noting(mx.name.NameManager.get, calls, is_last=False))
        patch(mx.name.Prefix, "get", _noting(mx.name.Prefix.get, calls, is_last=True))
        patch(mx.sym.Symbol, "reshape", _reshape(mx.sym.Symbol.reshape, calls))
        if not with_weights:
            patch(Parameter, "initialize", lambda self, *args, **kwargs: None)
            patch(Parameter, "list_ctx", lambda self: [mx.cpu()])
            patch(ParameterDict, "load", lambda self, *args, **kwargs: None)
            patch(mx.gluon.Block, "load_parameters", lambda self, *args, **kwargs: None)
        yield calls


def _noting(get: Callable[..., str], calls: Calls, *, is_last: bool) -> Callable[..., str]:
    def noted(self: Any, name: str | None, hint: str) -> str:
        found = get(self, name, hint)
        # A prefixed name is made of a plain one: only the whole is noted.
        if is_last or type(self) is mx.name.NameManager:
            calls.note(found)
        return found

    return noted


def _reshape(reshape: Callable[..., Any], calls: Calls) -> Callable[..., Any]:
    def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
        made = reshape(self, *args, **kwargs)
        calls.views.add(made.name)
        return made

    return noted
