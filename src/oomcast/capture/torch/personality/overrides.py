"""Registers Python kernels with torch's dispatcher for a while, and takes them away again."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..operator_names import operator

__all__ = ["COMPOSITES", "Overrides", "composite"]

_CAN_ALLOW_OVERRIDE = "allow_override" in inspect.signature(torch.library.Library.impl).parameters


COMPOSITES: dict[Any, Callable[..., Any]] = {}
"""Composite operator → the kernel in its place, while a personality is in place.

Under `torch.inference_mode` there is no autograd key, and modes meet the composites whole: a recorder that finds one
here can run its kernel with itself entered again, and so see the operators inside.
"""


def composite(op: Any) -> Callable[..., Any]:
    """torch's own C++ implementation of a composite operator: what runs where it is not overridden.

    `op.decompose` would prefer decompositions in Python, which eager torch never takes.
    """
    key = torch._C.DispatchKey.CompositeImplicitAutograd

    def run(*args: Any, **kwargs: Any) -> Any:
        return op._op_dk(key, *args, **kwargs)

    return run


class Overrides:
    """The kernels one personality has put in place."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")

    def add(self, name: str, kernel: Callable[..., Any], key: str) -> None:
        """Put `kernel` in place of what the dispatcher has for this operator and key."""
        options = {"allow_override": True} if _CAN_ALLOW_OVERRIDE else {}
        # The dispatcher warns that a kernel is replaced, which is the purpose.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._library.impl(name, kernel, key, **options)
        if key == "AutogradCPU":
            COMPOSITES[operator(name)] = kernel

    def remove(self) -> None:
        """Take all kernels away: the dispatcher falls back to those that were there before."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
            COMPOSITES.clear()
