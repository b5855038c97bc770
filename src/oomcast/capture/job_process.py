"""What a job's own process does: it keeps to its limits, runs the job, leaves the answer, and ends.

The job is foreign code. It may write to any descriptor, fork, end its process, hang, or start programs. So its answer
goes by a file of a secret name, which is made only when the job is done: no descriptor to write to while the job runs,
and a fork of the job's own never gets there. What it writes lies in a folder that is thrown away when it has ended,
unless its files are to be written.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NoReturn

from .keeping_apart import current_overlay, keep_apart
from .messages import Answer, Ended

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

__all__ = ["NO_ANSWER_WRITTEN", "Desk", "Limits", "answer_now", "be_the_job", "end_process", "ending_of"]

end_process = os._exit
"""As it was before a script's own calls of it are watched."""

NO_ANSWER_WRITTEN = 86
"""Exit code of a job's process that could not write its answer."""
_LOG_BYTES = 8192


@dataclass(frozen=True)
class Limits:
    """What a job may take of this machine."""

    seconds: float
    memory: int | None = None
    """Bytes."""
    write_files: bool = False
    """Whether what it writes reaches the files that it names."""


@dataclass(frozen=True)
class Desk:
    """Where a job's process works and leaves its answer."""

    folder: str
    """The job's own: it is empty but for what its guard put there, and is removed when the job has ended."""
    answer: str
    """A file that is not there yet."""
    request_id: str
    limits: Limits


_seated: tuple[int, Desk] | None = None
"""The process that runs a job, and its desk."""


def be_the_job(work: Callable[[], Answer], desk: Desk, log: int, settle: Callable[[], None]) -> NoReturn:
    """What the job prints goes to the descriptor `log`; the cleanup of whoever forked us is not ours to do.

    `settle` comes first: how this process is bound to its guard.
    """
    global _seated
    code = NO_ANSWER_WRITTEN
    own = os.getpid()
    _seated = own, desk
    try:
        os.dup2(log, 1)
        os.dup2(log, 2)
        settle()
        faulthandler.disable()  # the guard says in a sentence how it ended
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with _kept_apart(desk), _memory_limit(desk.limits.memory):
            answer = work()
        if os.getpid() == own:  # else this is a fork that the job made, and that came back
            _leave(desk.answer, answer.to(desk.request_id).to_bytes())
            code = 0
    except BaseException:
        _last_words()
    finally:
        end_process(code)


def answer_now(answer: Answer) -> NoReturn:
    """In a job's process: answer, and end it wherever the job is; none of its code runs any more.

    What the job forked itself has nothing to answer, and only ends.
    """
    code = NO_ANSWER_WRITTEN
    try:
        if _seated is not None and _seated[0] == os.getpid():
            overlay = current_overlay()
            with contextlib.nullcontext() if overlay is None else overlay.aside():
                _leave(_seated[1].answer, answer.to(_seated[1].request_id).to_bytes())
            code = 0
    except BaseException:
        _last_words()
    finally:
        end_process(code)


def _last_words() -> None:
    with contextlib.suppress(Exception):
        os.write(2, traceback.format_exc().encode())


def _kept_apart(desk: Desk) -> contextlib.AbstractContextManager[object]:
    # Windows' paths and its way of removing open files are not known to the overlay.
    if desk.limits.write_files or os.name != "posix":
        return contextlib.nullcontext()
    return keep_apart(desk.folder)


def _leave(path: str, data: bytes) -> None:
    """Whole, or not at all: nobody reads before this process has ended well."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
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


# -- for its guard -----------------------------------------------------------------------------------------------------


def ending_of(desk: Desk, exit_code: int | None, log: BinaryIO) -> Answer:
    """The answer that a job left, or how it ended without one: by that code, or at its time limit (None)."""
    if exit_code is None:
        return Answer(ended=Ended(too_long=True, log=_tail(log)), id=desk.request_id)
    answer = Answer.from_bytes(_content(desk.answer)) if exit_code == 0 else None
    if answer is not None and answer.id == desk.request_id:
        return answer
    ended = Ended(signal=max(-exit_code, 0), exit_code=max(exit_code, 0), log=_tail(log))
    return Answer(ended=ended, id=desk.request_id)


def _content(path: str) -> bytes:
    """What the job's process wrote; nothing if it wrote nothing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        return file.read()


def _tail(log: BinaryIO) -> str:
    log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
    return log.read().decode(errors="replace")
