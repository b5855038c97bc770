"""A process beside a Ray cluster that we have started: it ends what is left of the cluster when we are gone.

Killed, we cannot shut Ray down. Ray then ends most of its processes, but what its raylet has started waits for about a
minute until it believes that the raylet is gone.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from oomcast.children import close_pipes, module_command

from ..processes import descendants, end_marked, is_alive, process_start

__all__ = ["guarded_cluster", "main"]

_EVERY = 0.5
_FAREWELL = 2.0
"""Seconds in which they may end by themselves."""


@contextlib.contextmanager
def guarded_cluster() -> Iterator[None]:
    """While a cluster of our own is running. Whatever is started within inherits a mark."""
    mark = f"OOMCAST_CLUSTER={secrets.token_hex(32)}"
    guard = subprocess.Popen(
        module_command(f"{__package__}.ray_guard", mark), stdin=subprocess.PIPE, bufsize=0, start_new_session=True
    )
    name, _, value = mark.partition("=")
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        close_pipes(guard)
        guard.wait()


def main() -> None:
    """Two ways to know a process of the cluster: the mark, which it loses when it renames itself, and its parents,
    which are seen only if it has lived for a while."""
    caller = os.getppid()
    known: dict[int, str] = {}
    while not select.select([0], [], [], _EVERY)[0]:  # nobody writes: it is readable when the caller has ended
        for raylet in descendants(caller):
            if _is_raylet(raylet):
                known |= {process: process_start(process) for process in descendants(raylet)}
    deadline = time.monotonic() + _FAREWELL
    while time.monotonic() < deadline and any(map(is_alive, known, known.values())):
        time.sleep(0.1)
    for process, started in known.items():
        if is_alive(process, started):
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
    end_marked(sys.argv[1])


def _is_raylet(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(os.readlink(f"/proc/{process}/exe")).name == "raylet"
    return False
