"""The parser of every command: both spellings of a flag, mistakes in one sentence, near matches."""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .output import harmless

__all__ = ["Parser"]


class Parser(argparse.ArgumentParser):
    """Takes `--batch_size` for `--batch-size`, as people write both; errors are one sentence with exit code 2."""

    before_parsing: Callable[[Parser, Sequence[str]], None] | None = None
    """Sees the words of the command before they are read: some of them decide which flags there are."""

    def __init__(self, *, formatter_class: Any = argparse.HelpFormatter, **options: Any) -> None:
        # argparse would ask for the width again for each option, by modules that take as long to load as itself.
        super().__init__(formatter_class=functools.partial(formatter_class, width=_help_width()), **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = _with_dashes(sys.argv[1:] if args is None else args)
        if self.before_parsing is not None:
            self.before_parsing(self, words)
        return super().parse_known_args(words, namespace)

    def flags(self) -> tuple[str, ...]:
        """Every flag that it takes, as it is written."""
        return tuple(flag for action in self._actions for flag in action.option_strings)

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"oomcast: {harmless(message)}; see {self.prog} --help.\n")


@functools.cache
def _help_width() -> int:
    """As argparse has it: two columns less than COLUMNS says, else the terminal, else 80."""
    named = os.environ.get("COLUMNS", "")
    if named.isdigit() and int(named) > 0:
        return int(named) - 2
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns - 2 or 78
    except (OSError, ValueError):
        return 78


def _with_dashes(words: Sequence[str]) -> list[str]:
    """Flags as they are declared; what stands after a bare `--` belongs to somebody else."""
    own = words[: words.index("--")] if "--" in words else words
    return [*(_with_dash(word) for word in own), *words[len(own) :]]


def _with_dash(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    # argparse drops a value that is only dashes (`--device=--`), and then misses it.
    value = " --" if value == "--" else value
    return name.replace("_", "-") + equals + value
