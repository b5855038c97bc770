"""A process that starts anew for each request: the way where a process with its framework loaded cannot be forked.

The caller is the guard here. The new process loads the framework, reads one request from its stdin, is the job, leaves
its answer in a file and ends; when its stdin closes before, its caller is gone, and it ends with it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from ..children import close_pipes, forget_in_forks, module_command
from ..errors import BadInput
from ..spec import JobKind
from .job_process import Desk, Limits, ending_of
from .messages import Answer, Order, Request, TimeLimit, checked, write_all
from .scratch import scratch_folder

__all__ = ["SpawningServer"]

_LOADING_MAY_TAKE = 120.0
"""Seconds before the job begins. They are not the job's own, and a cold disk is slow."""
_LOOK_AGAIN = 0.02


class SpawningServer:
    """Starts a process for each request, and from the second on one in advance, which loads while the caller works."""

    def __init__(self, framework: str = "torch", python: str = sys.executable) -> None:
        self._command = module_command("oomcast.capture.worker", framework, "--one-request", python=python)
        self._next: subprocess.Popen[bytes] | None = None
        self._at_work: subprocess.Popen[bytes] | None = None
        self._asked = 0
        self._lock = threading.Lock()
        self._owner = os.getpid()
        forget_in_forks(self)

    def ask(self, request: Request, limits: Limits) -> Answer:
        """Raises TimeLimit or ProcessEnded where there is no answer, BadInput for an object that cannot be sent."""
        pickled = _pickled(request) if request.spec.workload.job.kind is JobKind.OBJECT else None
        with self._lock:
            process, self._next = self._next or self._started(), None
            self._at_work = process
            try:
                with scratch_folder() as folder:
                    return checked(_guarded(process, request, limits, folder, pickled))
            finally:
                self._at_work = None
                _end(process)
                self._asked += 1
                if self._asked > 1:
                    self._next = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid() or self._asked == 0:
            self._owner = os.getpid()
            atexit.register(self.stop)
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            bufsize=0,
            # What the terminal sends to the caller is not for the job.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def stop(self) -> None:
        """End the process that waits, if there is one."""
        process, self._next = self._next, None
        if process is not None and self._owner == os.getpid():
            _end(process)

    def interrupt(self) -> None:
        """From another thread: whoever waits for an answer is told that the process has ended."""
        process = self._at_work
        if process is not None and process.stdin is not None and self._owner == os.getpid():
            with contextlib.suppress(OSError):
                process.stdin.close()  # it then ends, and what it started with it

    def forget(self) -> None:
        """In a fork: the process is the parent's."""
        process, self._next = self._next, None
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if process is not None:
            close_pipes(process)
            process.returncode = 0  # not ours to wait for


def _pickled(request: Request) -> bytes:
    """The request for a job that is an object, with this process's environment. Raises BadInput."""
    request = replace(request, variables=dict(os.environ))
    dumps: Callable[[Any], bytes] = pickle.dumps
    with contextlib.suppress(ModuleNotFoundError):
        dumps = importlib.import_module("cloudpickle").dumps  # it can send what was defined in a notebook, too
    try:
        return dumps(request)
    except Exception as error:
        said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise BadInput(
            f"{request.spec.workload.job.name} cannot be sent to the process that would run it ({said}); put its "
            "functions into a file and give that, or install cloudpickle if it is missing."
        ) from None


def _guarded(
    process: subprocess.Popen[bytes], request: Request, limits: Limits, folder: str, pickled: bytes | None
) -> Answer:
    def place(content: bytes = b"") -> str:
        path = os.path.join(folder, secrets.token_hex(16))
        with open(path, "xb") as file:
            file.write(content)
        return path

    desk = Desk(folder, os.path.join(folder, secrets.token_hex(16)), request.id, limits)
    order = Order(
        desk=asdict(desk),
        log=place(),
        begun=os.path.join(folder, secrets.token_hex(16)),
        request=None if pickled is not None else request.as_plain(),
        pickled=None if pickled is None else place(pickled),
        folder=request.folder,
        path=None if pickled is None else sys.path,
    )
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # then it has ended
        write_all(process.stdin.fileno(), order.to_bytes())
    if not _waited(process, _LOADING_MAY_TAKE, lambda: os.path.exists(order.begun)):
        raise TimeLimit
    in_time = _waited(process, limits.seconds)
    _end(process)
    with open(order.log, "rb") as log:
        return ending_of(desk, process.returncode if in_time else None, log)


def _waited(process: subprocess.Popen[bytes], seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
    """Whether the process ended, or what was waited for came, within that time."""
    deadline = time.monotonic() + seconds
    while not until():
        try:
            process.wait(_LOOK_AGAIN)
            return True
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """The job's process, and what it started."""
    close_pipes(process)
    if os.name == "posix":
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        subprocess.run(["taskkill", "/T", "/F", "/PID", str(process.pid)], capture_output=True, check=False)
    process.wait()
