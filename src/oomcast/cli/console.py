"""rich's console for what may come from anybody: no markup is read in names, no control character is sent."""

from __future__ import annotations

from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment

from .output import harmless

__all__ = ["PlainConsole"]


class PlainConsole(Console):
    """Prints what it is given as it stands: `[/x]` and `:x:` are names like any other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def print(self, *objects: Any, **options: Any) -> None:
        # What may not be broken into lines, such as a command, is printed whole: rich would cut it off.
        super().print(*(_Harmless(shown) for shown in objects), **{"crop": False, **options})


class _Harmless:
    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._shown, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)
