"""Python's collector of cycles beside a capture. When it runs is chance; what it costs and what it frees must not be.

While libraries are loaded nothing is garbage, but the collector looks at everything again and again: a third of the
time that loading takes. And a job's model, which is mostly part of some cycle, goes when the collector comes by: in one
capture before its record is closed, in the next one after it.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["collector_as_before", "collector_rests", "keep_for_good", "let_collector_rest"]


@contextlib.contextmanager
def collector_as_before() -> Iterator[None]:
    """Whatever happens within, afterwards it runs if it did before."""
    ran = gc.isenabled()
    try:
        yield
    finally:
        if ran:
            gc.enable()
        else:
            gc.disable()


@contextlib.contextmanager
def collector_rests() -> Iterator[None]:
    """Within, nothing is looked for."""
    with collector_as_before():
        let_collector_rest()
        yield


def let_collector_rest() -> None:
    gc.disable()


def keep_for_good() -> None:
    """In a process of our own: what is loaded by now is never looked at again, neither here nor in its forks."""
    gc.freeze()
