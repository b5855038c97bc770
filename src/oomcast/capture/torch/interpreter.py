"""What CPython itself costs where calls are deep and many, and objects come by the million: kept low."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

__all__ = ["load_sympy", "seldom_collecting", "with_room"]

_T = TypeVar("_T")


def with_room(call: Callable[..., _T], *args: Any, **kwargs: Any) -> _T:
    """The same call, with one piece of memory for the frames of all that it calls.

    CPython 3.11 and later takes frames from pieces of 16 KiB, and gives a piece back to the system as soon as it is
    empty (Python/pystate.c, `_PyThreadState_PushFrame` and `_PyThreadState_PopFrame`). Code that happens to call and
    return where a piece ends does so for each call: 800,000 times while a ResNet-50 was lowered, a fifth of its time.
    """
    return call(*args, **kwargs)


_OPERANDS = (1 << 16) + 1000
"""A little more than half a MiB: pieces are doubled until the first frame fits, so that the rest of a MiB is left. The
frame above asks for it as room for its operands, and never touches it."""
with_room.__code__ = with_room.__code__.replace(co_stacksize=_OPERANDS)


_SELDOM = (200_000, 50, 100)
"""How many new objects there are before the youngest are looked through, and how many times that for the older ones."""


@contextlib.contextmanager
def seldom_collecting() -> Iterator[None]:
    """While nearly all that is made lives to the end, a garbage collector that looks through it again and again finds
    nothing: a sixth of the time that compiling took."""
    before = gc.get_threshold()
    if before[0]:  # else somebody has switched it off
        gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


_SYMPY_REMEMBERS = "SYMPY_CACHE_SIZE"
_ANSWERS = "20000"


def load_sympy() -> None:
    """With room for the expressions of a whole model. Each of its functions remembers 1,000 answers, unless it is told
    otherwise when it is loaded: a layer's are forgotten before the next layer of that shape comes."""
    if "sympy" in sys.modules or _SYMPY_REMEMBERS in os.environ:
        return
    os.environ[_SYMPY_REMEMBERS] = _ANSWERS
    try:
        importlib.import_module("sympy")
    finally:
        del os.environ[_SYMPY_REMEMBERS]  # the job, and what it starts, have the caller's environment
