"""What libraries write to the process's standard error, past Python, sent elsewhere for a while."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

__all__ = ["silenced", "stderr_into"]


@contextlib.contextmanager
def stderr_into(descriptor: int) -> Iterator[None]:
    before = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        with stderr_into(nowhere):
            yield
    finally:
        os.close(nowhere)
