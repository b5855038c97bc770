"""Processes that oomcast starts for itself: how they start, and how they end with the process that started them.

A process of ours runs an oomcast module, never what lies in the current folder: `python -m` would put that folder first
on the path, and a `numpy.py` in it would be run. It speaks through pipes, which a fork of its caller must not share.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

__all__ = [
    "START_METHOD",
    "HoldsPipes",
    "close_pipes",
    "die_with_parent",
    "forget_in_forks",
    "jobs_are_forks",
    "live_on",
    "module_command",
]

_PR_SET_PDEATHSIG = 1

START_METHOD = "OOMCAST_START_METHOD"
"""A variable: `spawn` has every job start anew on Linux, too, so that the way of the other systems can be tried."""


def jobs_are_forks() -> bool:
    """Whether a job is a fork of a process that has its framework loaded; else its process starts anew.

    Forks save the seconds of loading. Windows has none, and on macOS the system's own libraries do not survive one.
    """
    return sys.platform.startswith("linux") and os.environ.get(START_METHOD) != "spawn"


def module_command(module: str, *arguments: str, python: str = sys.executable) -> list[str]:
    """The command that calls `main()` of a module of oomcast.

    Our own interpreter finds the oomcast that is running even if it is not installed. Another one must have its own:
    the folder we come from may hold packages of versions that it cannot load.
    """
    folders = [str(Path(__file__).parents[1])] if python == sys.executable else []
    # `-c` puts '' on the path, the current folder; it is taken off before anything is imported from there. Python's
    # own switch for that, `-P`, is missing in 3.10.
    start = f"import sys; sys.path[:] = [folder for folder in sys.path if folder] + {folders!r}; "
    return [python, "-c", f"{start}from {module} import main; sys.exit(main())", *arguments]


class HoldsPipes(Protocol):
    """What has a process at the other end of its pipes."""

    def forget(self) -> None:
        """Close our copies of the pipes; the process belongs to somebody else."""


_holders: weakref.WeakSet[HoldsPipes] = weakref.WeakSet()


def forget_in_forks(holder: HoldsPipes) -> None:
    """In every fork of this process `holder.forget()` is called: it would keep the pipes open, or write into them."""
    _holders.add(holder)


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


def _after_fork() -> None:
    for holder in list(_holders):
        holder.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def die_with_parent() -> bool:
    """On Linux: have this process killed when the thread that started it ends. Elsewhere False, and nothing is done."""
    return _death_signal(int(signal.SIGKILL)) if sys.platform.startswith("linux") else False


def live_on() -> None:
    """Undo `die_with_parent`."""
    if sys.platform.startswith("linux"):
        _death_signal(0)


def _death_signal(number: int) -> bool:
    return bool(_prctl()(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)


@functools.cache
def _prctl() -> Callable[..., int]:
    prctl: Callable[..., int] = ctypes.CDLL(None, use_errno=True).prctl
    return prctl
