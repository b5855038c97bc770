"""Processes that capture: a server that has its framework loaded and forks for each request, or a fork of our own."""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable

from ._messages import Answer, Request

__all__ = ["CaptureServer", "ProcessEnded", "TimeLimit", "answer_in_fork", "run_forked"]


class TimeLimit(Exception):
    """The capture took too long and was ended."""


class ProcessEnded(Exception):
    """The capture process died without an answer."""

    def __init__(self, signal_number: int, exit_code: int, log: str) -> None:
        super().__init__(signal_number, exit_code)
        self.signal = signal_number
        self.exit_code = exit_code
        self.log = log

    def last_words(self) -> str:
        """The last line that says something; C++ prints its reason before it aborts."""
        lines = [line.strip() for line in self.log.splitlines() if line.strip()]
        telling = [line for line in lines if "rror" in line or "what()" in line]
        return (telling or lines or [""])[-1][:300]


class CaptureServer:
    """A process with its framework loaded, started when first asked and kept: loading takes longer than a capture."""

    def __init__(self, module: str = "oomcast.capture.torch.server", python: str = sys.executable) -> None:
        self._command = [python, "-m", module]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._owner = 0

    def ask(self, request: Request, time_limit: float) -> Answer:
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            request.write(process.stdin)  # type: ignore[arg-type]
            try:
                data = _read_answer(process.stdout.fileno(), time.monotonic() + time_limit)
            except TimeLimit:
                self.stop()
                raise
            if data is None:
                code = process.wait()
                self.stop()
                raise ProcessEnded(max(-code, 0), code, "")
        if data.ended is not None:
            raise ProcessEnded(data.ended[0], data.ended[1], data.log)
        return data

    def _running(self) -> subprocess.Popen[bytes]:
        # A process forked from ours must not share the pipe.
        if self._process is None or self._process.poll() is not None or self._owner != os.getpid():
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._owner = os.getpid()
            atexit.register(self.stop)
        return self._process

    def stop(self) -> None:
        """End the server and whatever it started."""
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def run_forked(work: Callable[[], Answer], time_limit: float) -> Answer:
    """Do the work in a fork of this process, so that it sees the caller's objects and cannot harm it."""
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # The fork only runs the capture on one thread and leaves by _exit, so other threads do not matter.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(read_end)
        os.setpgid(0, 0)
        answer_in_fork(work, write_end)
    os.close(write_end)
    try:
        answer = _read_answer(read_end, time.monotonic() + time_limit)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    finally:
        os.close(read_end)
    _, status = os.waitpid(child, 0)
    if answer is None:
        raise ProcessEnded(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, os.waitstatus_to_exitcode(status), "")
    return answer


def answer_in_fork(work: Callable[[], Answer], write_end: int) -> None:
    """In the child: keep what the job prints to itself, answer, and leave without the parent's cleanup."""
    code = 1
    faulthandler.disable()  # the parent says in a sentence how it ended
    try:
        log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this process
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        answer = work()
        with os.fdopen(write_end, "wb") as pipe:
            answer.write(pipe)
        code = 0
    finally:
        os._exit(code)


def _read_answer(descriptor: int, deadline: float) -> Answer | None:
    """Read one answer; None if the other side closed before it was complete."""
    parts = bytearray()
    expected: int | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0 or not selector.select(remaining):
                raise TimeLimit
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                return None
            parts += chunk
            if expected is None and b"\n" in parts:
                expected = _expected_length(bytes(parts[: parts.index(b"\n")]), parts.index(b"\n") + 1)
            if expected is not None and len(parts) >= expected:
                return Answer.from_bytes(bytes(parts))


def _expected_length(header: bytes, start: int) -> int:
    return start + int(json.loads(header)["bytes"])
