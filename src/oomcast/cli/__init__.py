"""The command line: parse, call, print."""

from __future__ import annotations

import gc
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; help, versions and faulty options leave by SystemExit."""
    # Nothing of what is loaded and declared before a command runs is garbage, and looking for it takes a tenth of the
    # time that help takes. The collector is back before the command itself runs.
    collects = gc.isenabled()
    gc.disable()
    try:
        from .entry import run_command_line

        return run_command_line(arguments, before_command=gc.enable if collects else lambda: None)
    finally:
        if collects:
            gc.enable()
