"""A line that turns while something takes long, for those who watch."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console

__all__ = ["working"]


def working(sentence: str) -> AbstractContextManager[Any]:
    """On a terminal only: a pipe gets nothing."""
    errors = Console(stderr=True)
    return errors.status(sentence) if errors.is_terminal else contextlib.nullcontext()
