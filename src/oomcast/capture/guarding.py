"""A job in a fork of this process, and this process as its guard: limits, what it leaves behind, what it answers.

The job runs in a process group of its own, which is killed when it has answered, at the time limit, and when the
process that waits for the answer is gone; and it dies with its guard. On Linux: elsewhere jobs start anew (`spawned`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from ..children import die_with_parent
from .job_process import NO_ANSWER_WRITTEN, Desk, Limits, be_the_job, end_process, ending_of
from .messages import Answer, Ended
from .scratch import scratch_folder

__all__ = ["CallerGone", "Waiter", "fork", "run_guarded"]

_LOOK_AGAIN = 1.0
"""Seconds after which a guard looks whether its parent is still there, if nothing happens before."""


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Waiter:
    """Who waits for the answer: gone when it is no longer our parent, or when it closes its end of `lifeline`."""

    parent: int
    lifeline: int
    """A descriptor: the reading end of a pipe whose other end only the waiting process has."""

    def is_gone(self) -> bool:
        if os.getppid() != self.parent:
            return True
        poller = select.poll()
        poller.register(self.lifeline, 0)  # of itself it tells of the other end's closing, and of nothing else
        return bool(poller.poll(0))


def run_guarded(
    work: Callable[[], Answer], request_id: str, limits: Limits, waiter: Waiter, private: Sequence[int] = ()
) -> Answer:
    """Do the work in a fork and return its answer, or how it ended. `private` descriptors are closed in the fork.

    Raises CallerGone, with the job ended, if nobody waits any more.
    """
    try:
        with scratch_folder() as folder, tempfile.TemporaryFile(dir=folder) as log:
            desk = Desk(folder, os.path.join(folder, secrets.token_hex(16)), request_id, limits)
            return _guarded(work, desk, log, waiter, private)
    except OSError as error:
        return Answer(ended=Ended(exit_code=NO_ANSWER_WRITTEN, log=f"{error.strerror or error}"), id=request_id)


def _guarded(work: Callable[[], Answer], desk: Desk, log: BinaryIO, waiter: Waiter, private: Sequence[int]) -> Answer:
    guard = os.getpid()
    process = fork()
    if process == 0:
        be_the_job(work, desk, log.fileno(), lambda: _be_bound_to(guard, (*private, waiter.lifeline)))
    with contextlib.suppress(OSError):  # the fork does it, too: whoever comes first
        os.setpgid(process, process)
    child = _Child(process)
    try:
        in_time = _wait(child, desk.limits.seconds, waiter)
    finally:
        status = child.end()
    return ending_of(desk, os.waitstatus_to_exitcode(status) if in_time else None, log)


def fork() -> int:
    with warnings.catch_warnings():
        # The fork goes on with one thread and leaves by _exit: it has no use for the other threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class _Child:
    """A fork that leads a process group."""

    def __init__(self, process: int) -> None:
        self.process = process

    def has_ended(self) -> bool:
        """It is not reaped: so long nobody else can get its number."""
        return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def end(self) -> int:
        """Kill what there still is of the group; the status of its leader."""
        with contextlib.suppress(OSError):
            os.killpg(self.process, signal.SIGKILL)
        with contextlib.suppress(OSError):  # the group may not be there yet
            os.kill(self.process, signal.SIGKILL)
        return os.waitpid(self.process, 0)[1]


def _wait(child: _Child, seconds: float, waiter: Waiter) -> bool:
    """Whether the child ended by itself within that time."""
    deadline = time.monotonic() + seconds
    poller = select.poll()
    poller.register(waiter.lifeline, 0)
    pause = _LOOK_AGAIN
    with _exit_descriptor(child.process) as descriptor:
        if descriptor is None:
            pause = 0.01
        else:
            poller.register(descriptor, select.POLLIN)
        while not child.has_ended():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            poller.poll(max(1, int(min(remaining, pause) * 1000)))
            if waiter.is_gone():
                raise CallerGone
    return True


@contextlib.contextmanager
def _exit_descriptor(process: int) -> Iterator[int | None]:
    """Readable when the process has ended; None where the kernel has no such thing."""
    descriptor = None
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _be_bound_to(guard: int, private: Sequence[int]) -> None:
    """In the fork: a group of its own that dies with its guard, without the guard's descriptors."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    die_with_parent()
    if os.getppid() != guard:
        end_process(NO_ANSWER_WRITTEN)
    for descriptor in private:
        os.close(descriptor)
