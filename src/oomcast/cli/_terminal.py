"""Where text goes: as wide as the terminal, or wide enough for whole tables where there is none."""

from __future__ import annotations

from rich.console import Console

__all__ = ["terminal"]

_PIPE_WIDTH = 160


def terminal() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)
