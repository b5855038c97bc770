"""From the caller's side: a process with its framework loaded that answers requests, or a fork of our own.

Whatever goes wrong while an answer is waited for, Ctrl-C included, ends the other process: its answer could else be
taken for that of the next request.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from ..children import close_pipes, forget_in_forks, module_command
from .guarding import CallerGone, Waiter, fork, run_guarded
from .job_process import Limits
from .messages import Answer, Ended, ProcessEnded, Request, TimeLimit, answer_length, checked, new_id, write_all

__all__ = ["CaptureServer", "run_forked"]

_GRACE = 60.0
"""Seconds beyond the job's own limit, in which a framework may be loaded. The guard keeps the limit; this is for one
that hangs itself."""
_FAREWELL = 1.0
"""Seconds in which a process may end by itself, and what it started with it, when it is no longer wanted."""


class CaptureServer:
    """A process with its framework loaded, started when first asked and kept: loading takes longer than a capture."""

    def __init__(self, framework: str = "torch", python: str = sys.executable) -> None:
        self._command = module_command("oomcast.capture.worker", framework, python=python)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._owner = os.getpid()
        forget_in_forks(self)

    def ask(self, request: Request, limits: Limits) -> Answer:
        """Raises TimeLimit or ProcessEnded where there is no answer."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with contextlib.suppress(BrokenPipeError):  # then there is no answer either
                    write_all(process.stdin.fileno(), request.to_bytes())
                answer = _read_answer(process.stdout.fileno(), time.monotonic() + limits.seconds + _GRACE)
                if answer is None or answer.id != request.id:
                    raise ProcessEnded(self._how_it_ended(process))
            except BaseException:
                self.stop()
                raise
        return checked(answer)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True
            )
            self._owner = os.getpid()
            atexit.register(self.stop)
        return self._process

    def _how_it_ended(self, process: subprocess.Popen[bytes]) -> Ended:
        try:
            code = process.wait(_FAREWELL)
        except subprocess.TimeoutExpired:
            return Ended(log="error: it answered another request than the one it was asked")
        return Ended(signal=-code) if code < 0 else Ended(exit_code=code)

    def stop(self) -> None:
        """End the server and whatever it started."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        atexit.unregister(self.stop)
        close_pipes(process)  # it then ends its job, and what that started, and itself
        try:
            process.wait(_FAREWELL)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise

    def interrupt(self) -> None:
        """From another thread: whoever waits for an answer is told that the process has ended."""
        process = self._process
        if process is not None and process.stdin is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                process.stdin.close()  # it then ends its job, and itself

    def forget(self) -> None:
        """In a fork: the process is the parent's."""
        process, self._process = self._process, None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if process is not None:
            close_pipes(process)
            process.returncode = 0  # not ours to wait for


def run_forked(work: Callable[[], Answer], limits: Limits) -> Answer:
    """Do the work in a fork of this process, so that it sees the caller's objects and cannot harm it.

    A second fork between us is the guard: it keeps the limits and ends the job if we are gone.
    """
    request_id, caller = new_id(), os.getpid()
    answers, answering = os.pipe()
    lifeline, ours = os.pipe()
    guard = fork()
    if guard == 0:
        _be_the_guard(work, request_id, limits, Waiter(caller, lifeline), answering, (answers, ours))
    os.close(answering)
    os.close(lifeline)
    try:
        answer = _read_answer(answers, time.monotonic() + limits.seconds + _GRACE)
    finally:
        os.close(ours)  # the guard ends its job and itself, if it has not yet
        os.close(answers)
        status = _reap(guard)
    if answer is None or answer.id != request_id:
        code = os.waitstatus_to_exitcode(status)
        raise ProcessEnded(Ended(signal=max(-code, 0), exit_code=max(code, 0)))
    return checked(answer)


def _be_the_guard(
    work: Callable[[], Answer],
    request_id: str,
    limits: Limits,
    waiter: Waiter,
    answering: int,
    not_ours: tuple[int, ...],
) -> None:
    """In the fork; never returns."""
    code = 1
    try:
        os.setsid()  # what the terminal sends to the caller is not for us
        for descriptor in not_ours:
            os.close(descriptor)
        answer = run_guarded(work, request_id, limits, waiter, (answering,))
        write_all(answering, answer.to_bytes())
        code = 0
    except CallerGone:
        pass
    finally:
        os._exit(code)


def _reap(guard: int) -> int:
    deadline = time.monotonic() + _FAREWELL
    pause = 0.0005
    while True:
        done, status = os.waitpid(guard, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > deadline:
            with contextlib.suppress(OSError):
                os.kill(guard, signal.SIGKILL)
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def _read_answer(descriptor: int, deadline: float) -> Answer | None:
    """Read one answer; None if the other side closed before it was complete, or sent something else."""
    data = bytearray()
    expected: int | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while expected is None or len(data) < expected:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(min(remaining, 3600)):
                if remaining > 3600:
                    continue
                raise TimeLimit
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                return None
            data += chunk
            if expected is None:
                try:
                    expected = answer_length(bytes(data))
                except ValueError:
                    return None
    return Answer.from_bytes(bytes(data))
