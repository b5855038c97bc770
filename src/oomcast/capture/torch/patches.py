"""Attributes exchanged for the time of a capture, and put back in reverse order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

__all__ = ["Patches"]

_ABSENT = object()


class Patches:
    """`patches.set(torch.cuda, "is_available", …)`; leaving the context restores what was there."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name, _ABSENT)
        if before is _ABSENT:
            self._undo.callback(delattr, owner, name)
        else:
            self._undo.callback(setattr, owner, name, before)
        setattr(owner, name, value)

    def at_the_end(self, undo: Callable[[], Any]) -> None:
        """Called when the context is left, in the same reverse order."""
        self._undo.callback(undo)

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, *exc: object) -> None:
        self._undo.close()
