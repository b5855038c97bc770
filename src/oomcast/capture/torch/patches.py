"""Attributes exchanged for the time of a capture, and put back in reverse order."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["Patches"]

_ABSENT = object()


class Patches:
    """`patches.set(torch.cuda, "is_available", …)`; leaving the context restores what was there."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []
        self._undo = contextlib.ExitStack()
        self._is_suspended = False

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, value)

    def at_the_end(self, undo: Callable[[], Any]) -> None:
        """Called when the context is left, before attributes are restored."""
        self._undo.callback(undo)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """What was there before is there again, for modules that look at it once, when they are loaded."""
        if self._is_suspended:
            yield
            return
        now = [(owner, name, vars(owner)[name]) for owner, name, _ in self._before]
        self._restore()
        self._is_suspended = True
        try:
            yield
        finally:
            self._is_suspended = False
            for owner, name, value in now:
                setattr(owner, name, value)

    def __enter__(self) -> Patches:
        return self

    def __exit__(self, *exc: object) -> None:
        self._undo.close()
        self._restore()
        self._before.clear()

    def _restore(self) -> None:
        for owner, name, value in reversed(self._before):
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
