"""A job in a fork of this process, and this process as its guard: limits, what it leaves behind, what it answers.

The job is foreign code. It may write to any descriptor, fork, end its process, hang, or start programs. So:

- its answer goes by a file of a secret name, which the fork makes only when the job is done: no descriptor to write to
  while the job runs, and a fork of the job's own never gets there;
- it runs in a process group of its own, which is killed when it has answered, at the time limit, and when the process
  that waits for the answer is gone;
- it dies with its guard;
- what it writes lies in a folder that is thrown away when it has ended, unless its files are to be written.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import secrets
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, NoReturn

from ..children import die_with_parent
from .keeping_apart import current_overlay, keep_apart
from .messages import Answer, Ended
from .scratch import scratch_folder

try:
    import resource
except ImportError:  # Windows, where nothing forks either
    resource = None  # type: ignore[assignment]

__all__ = ["NO_ANSWER_WRITTEN", "CallerGone", "Limits", "Waiter", "answer_now", "fork", "run_guarded"]

NO_ANSWER_WRITTEN = 86
"""Exit code of a fork that could not write its answer."""
_LOG_BYTES = 8192
_LOOK_AGAIN = 1.0
"""Seconds after which a guard looks whether its parent is still there, if nothing happens before."""


class CallerGone(Exception):
    """Nobody waits for the answer any more."""


@dataclass(frozen=True)
class Limits:
    """What a job may take of this machine."""

    seconds: float
    memory: int | None = None
    """Bytes."""
    write_files: bool = False
    """Whether what it writes reaches the files that it names."""


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
            return _guarded(_Job(work, request_id, limits, folder, log), waiter, private)
    except OSError as error:
        return Answer(ended=Ended(exit_code=NO_ANSWER_WRITTEN, log=f"{error.strerror or error}"), id=request_id)


@dataclass(frozen=True)
class _Job:
    """What the guard and the fork know of a job."""

    work: Callable[[], Answer]
    request_id: str
    limits: Limits
    folder: str
    """The job's own: it is empty, and is removed when the job has ended."""
    log: BinaryIO


def _guarded(job: _Job, waiter: Waiter, private: Sequence[int]) -> Answer:
    path = os.path.join(job.folder, secrets.token_hex(16))
    guard = os.getpid()
    process = fork()
    if process == 0:
        _be_the_job(job, path, guard, (*private, waiter.lifeline))
    with contextlib.suppress(OSError):  # the fork does it, too: whoever comes first
        os.setpgid(process, process)
    child = _Child(process)
    try:
        in_time = _wait(child, job.limits.seconds, waiter)
    finally:
        status = child.end()
    if not in_time:
        return Answer(ended=Ended(too_long=True, log=_tail(job.log)), id=job.request_id)
    answer = Answer.from_bytes(_content(path)) if status == 0 else None
    if answer is not None and answer.id == job.request_id:
        return answer
    if os.WIFSIGNALED(status):
        return Answer(ended=Ended(signal=os.WTERMSIG(status), log=_tail(job.log)), id=job.request_id)
    return Answer(ended=Ended(exit_code=os.waitstatus_to_exitcode(status), log=_tail(job.log)), id=job.request_id)


def fork() -> int:
    with warnings.catch_warnings():
        # The fork goes on with one thread and leaves by _exit: it has no use for the other threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


# -- the guard -------------------------------------------------------------------------------------------------------


class _Child:
    """A fork that leads a process group."""

    def __init__(self, process: int) -> None:
        self.process = process
        self._status: int | None = None

    def has_ended(self) -> bool:
        """It is not reaped, if that can be: so long nobody else can get its number."""
        if hasattr(os, "waitid"):
            return os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if self._status is None:
            ended, status = os.waitpid(self.process, os.WNOHANG)
            self._status = status if ended else None
        return self._status is not None

    def end(self) -> int:
        """Kill what there still is of the group; the status of its leader."""
        with contextlib.suppress(OSError):
            os.killpg(self.process, signal.SIGKILL)
        if self._status is None:
            with contextlib.suppress(OSError):  # the group may not be there yet
                os.kill(self.process, signal.SIGKILL)
            _, self._status = os.waitpid(self.process, 0)
        return self._status


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
    """Readable when the process has ended; None where the system has no such thing."""
    descriptor = None
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _content(path: str) -> bytes:
    """What the fork wrote; nothing if it wrote nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read()


def _tail(log: BinaryIO) -> str:
    log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
    return log.read().decode(errors="replace")


# -- the fork --------------------------------------------------------------------------------------------------------


class _Desk(NamedTuple):
    """Where the fork at hand leaves its answer."""

    process: int
    path: str
    request_id: str


_desk: _Desk | None = None


def answer_now(answer: Answer) -> NoReturn:
    """In a job's fork: answer, and end the process wherever the job is; none of its code runs any more.

    What the job forked itself has nothing to answer, and only ends.
    """
    code = NO_ANSWER_WRITTEN
    try:
        if _desk is not None and _desk.process == os.getpid():
            overlay = current_overlay()
            with contextlib.nullcontext() if overlay is None else overlay.aside():
                _leave(_desk.path, answer.to(_desk.request_id).to_bytes())
            code = 0
    except BaseException:
        with contextlib.suppress(Exception):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _be_the_job(job: _Job, path: str, guard: int, private: Sequence[int]) -> None:
    """Never returns. What the job prints is kept to itself; the parent's cleanup is not ours to do."""
    global _desk
    code = NO_ANSWER_WRITTEN
    own = os.getpid()
    _desk = _Desk(own, path, job.request_id)
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        _die_with(guard)
        faulthandler.disable()  # the guard says in a sentence how it ended
        for descriptor in private:
            os.close(descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(job.log.fileno(), 1)
        os.dup2(job.log.fileno(), 2)
        apart = contextlib.nullcontext() if job.limits.write_files else keep_apart(job.folder)
        with apart, _memory_limit(job.limits.memory):
            answer = job.work()
        if os.getpid() == own:  # else this is a fork that the job made, and that came back
            _leave(path, answer.to(job.request_id).to_bytes())
            code = 0
    except BaseException:
        with contextlib.suppress(Exception):
            os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _die_with(guard: int) -> None:
    if not die_with_parent():
        threading.Thread(target=_watch, args=(guard,), daemon=True).start()
    if os.getppid() != guard:
        os._exit(NO_ANSWER_WRITTEN)


def _watch(guard: int) -> None:
    """For systems that do not tell a process that its parent is gone."""
    while os.getppid() == guard:
        time.sleep(_LOOK_AGAIN)
    os.killpg(0, signal.SIGKILL)


def _leave(path: str, data: bytes) -> None:
    """Whole, or not at all: nobody reads before this process has ended well."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        os.unlink(path)
        raise


@contextlib.contextmanager
def _memory_limit(most: int | None) -> Iterator[None]:
    """Allocations beyond fail within. Lifted at the end, so that there is memory to say what happened."""
    if most is None or resource is None:
        yield
        return
    # Linux counts what is written to under DATA; AS would count mapped libraries and files as well.
    kind = resource.RLIMIT_DATA if sys.platform.startswith("linux") else resource.RLIMIT_AS
    before, highest = resource.getrlimit(kind)
    resource.setrlimit(kind, (most if highest == resource.RLIM_INFINITY else min(most, highest), highest))
    try:
        yield
    finally:
        resource.setrlimit(kind, (before, highest))
