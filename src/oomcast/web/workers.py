"""The server's side of its workers: threads that take questions from the store, each with a process that answers them.

The process is ended where a question takes more time or memory than it may; the next question starts a new one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..children import close_pipes, module_command
from ..errors import OomcastError
from .questions import Limits, Question
from .store import DONE, FAILED, Store
from .worker import read_message, write_message

__all__ = ["Workers"]

_LOOK_AGAIN = 0.5
_GRACE = 60.0
"""Seconds beyond the limit of a question, in which a framework may be loaded."""
_BEAT = 3.0
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Workers:
    """`finished(id, kind, state, seconds)` is called, in a worker's thread, for each question that is over."""

    def __init__(
        self, store: Store, limits: Limits, count: int, finished: Callable[[str, str, str, float], None]
    ) -> None:
        self._store, self._limits, self._finished = store, limits, finished
        self._ending = threading.Event()
        self._work = threading.Event()
        self._processes = [_Process() for _ in range(count)]
        self._threads = [threading.Thread(target=self._serve, args=(process,)) for process in self._processes]
        self._threads.append(threading.Thread(target=self._beat))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wake(self) -> None:
        """A question is waiting."""
        self._work.set()

    def close(self) -> None:
        """End the processes; what they were answering stays taken, until the store is closed."""
        self._ending.set()
        self._work.set()
        for process in self._processes:
            process.end()
        for thread in self._threads:
            thread.join()

    def _beat(self) -> None:
        while not self._ending.wait(_BEAT):
            with contextlib.suppress(OomcastError):  # a database that is away for a while is asked again
                self._store.heartbeat()
                self._work.set()

    def _serve(self, process: _Process) -> None:
        while not self._ending.is_set():
            self._work.clear()
            try:
                taken = self._store.take()
            except OomcastError:
                taken = None
            if taken is None:
                self._work.wait(_BEAT)
                continue
            started = time.monotonic()
            answer = process.answer(taken.question, self._limits)
            if self._ending.is_set():
                return  # ended from outside: the question waits for the next server
            state, media = answer["state"], answer.get("media", "")
            text = answer["text"] if state == DONE else answer["error"]
            self._write(taken.id, state, media, text)
            self._finished(taken.id, taken.question.kind, state, time.monotonic() - started)

    def _write(self, id: str, state: str, media: str, text: str) -> None:
        while not self._ending.is_set():
            try:
                return self._store.finish(id, state, media, text)
            except OomcastError:
                self._ending.wait(_BEAT)
        return None


class _Process:
    """One worker, started when it is first needed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def answer(self, question: Question, limits: Limits) -> dict[str, Any]:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_message(process.stdin, {"question": question.as_dict(), "limits": asdict(limits)})  # type: ignore[arg-type]
            trouble = self._wait(process, limits)
            answer = None if trouble else read_message(process.stdout)  # type: ignore[arg-type]
        except (OSError, ValueError):
            trouble, answer = "", None
        if answer is not None:
            return answer
        self.end()
        return {"state": FAILED, "error": trouble or "the process that should have answered ended."}

    def _wait(self, process: subprocess.Popen[bytes], limits: Limits) -> str:
        """Why the wait was ended; empty where there is something to read."""
        assert process.stdout is not None
        deadline = time.monotonic() + limits.seconds + _GRACE
        while not select.select([process.stdout], [], [], _LOOK_AGAIN)[0]:
            if time.monotonic() > deadline:
                return f"it took longer than {limits.seconds:g} seconds."
            if _resident(process.pid) > limits.memory:
                return f"it took more than {limits.memory >> 20} MiB of memory."
        return ""

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    module_command("oomcast.web.worker"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    start_new_session=True,
                )
            return self._process

    def end(self) -> None:
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            close_pipes(process)


def _resident(pid: int) -> int:
    """Bytes of memory in use; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
