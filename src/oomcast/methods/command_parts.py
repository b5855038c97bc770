"""What the commands of the methods share: their parser, a sentence for missing packages, progress on a terminal.

Nothing heavy is imported here before a command runs: `oomcast --help` loads every command's module for its summary.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from ..errors import BadInput
from ..files import write_atomically
from ..lazy import missing_package

__all__ = ["Action", "Tell", "add_actions", "needing", "progress_bars", "write_text"]

Action = Callable[[argparse.Namespace], int]


class Tell(Protocol):
    """Says how much of something is done; `words` stand beside its bar."""

    def __call__(self, what: str, done: int, total: int, words: str = "") -> None: ...


def add_actions(commands: Any, name: str, summary: str, description: str, examples: str) -> Any:
    """The parser of a command that has actions, like `oomcast campaign plan`; returns where to add them."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))


def needing(extra: str, action: Action) -> Action:
    """The action; where a package that only an extra of oomcast brings is missing, one sentence says which extra."""

    def run(options: argparse.Namespace) -> int:
        try:
            return action(options)
        except ImportError as error:
            if error.name is None or error.name.startswith("oomcast"):
                raise
            raise missing_package(error, extra) from None

    return run


@contextlib.contextmanager
def progress_bars(*, lines: bool = False) -> Iterator[Tell]:
    """One bar for each thing that is done, on a terminal only.

    With `lines`, where there is no terminal, as in the log of a batch job, a line on stderr for every tenth of it.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}
        tenths: dict[str, int] = {}

        def tell(what: str, done: int, total: int, words: str = "") -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            tenth = 10 * done // max(total, 1)
            if lines and done and not console.is_terminal and tenths.get(what) != tenth:
                tenths[what] = tenth
                print(f"{what}: {done} of {total} done{', ' + words if words else ''}", file=sys.stderr, flush=True)
            bars.update(tasks[what], completed=done, total=total, description=f"{what} {words}".rstrip())

        yield tell


def write_text(path: Path, text: str) -> None:
    if path.is_dir():
        raise BadInput(f"cannot write {path}: it is a folder; name a file in it.")
    write_atomically(path, text.encode())
