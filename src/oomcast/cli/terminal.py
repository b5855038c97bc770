"""What commands print: text for people, JSON for programs, and a line that turns while something takes long.

rich is loaded when the first text is printed: help and JSON need none of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from .output import harmless

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_json", "print_line", "terminal", "working"]

_PIPE_WIDTH = 160


def terminal() -> Console:
    """As wide as the terminal, or wide enough for whole tables where there is none."""
    from .console import PlainConsole

    console = PlainConsole()
    return console if console.is_terminal else PlainConsole(width=_PIPE_WIDTH)


def print_json(plain: Any) -> None:
    print(json.dumps(plain, indent=2))


def print_line(text: str) -> None:
    """One line as it is, however long."""
    print(harmless(text))


@contextlib.contextmanager
def working(sentence: str) -> Iterator[Callable[[str], None]]:
    """Shows the sentence while the block runs, on a terminal only; what it gives shows another one instead."""
    if not sys.stderr.isatty():
        yield lambda other: None
        return
    from rich.text import Text

    from .console import PlainConsole

    # Text, since a plain string would be read as markup.
    with PlainConsole(stderr=True).status(Text(harmless(sentence))) as status:
        yield lambda other: status.update(Text(harmless(other)))
