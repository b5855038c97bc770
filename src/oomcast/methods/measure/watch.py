"""Runs a Python file in a fresh process, watches what it holds, and ends it at its limits."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from ...errors import BadInput
from .measurement import Limits, TimelineSampler
from .processes import (
    MARKER,
    case_folder,
    clean_up,
    descendants,
    family_memory,
    kernel_oom_kills,
    memory_of,
    new_marker,
)

__all__ = ["Cancelled", "Watched", "watch"]

_WORKER = Path(__file__).with_name("worker.py")
_INTERVAL = 0.01
_SAMPLES_BETWEEN_FAMILY_LOOKS = 5
_LOG_KEPT = 1 << 16
_LARGEST_REPORT = 1 << 20
_DATA_SLACK = 2 << 30
"""Private memory a process may map beyond its limit without touching it: thread stacks, arenas, reserved pools."""
_PATIENCE_AFTER_KILL = 30.0
_REPORT_TAKES = 16 << 20
"""The worker reads its peak, then makes its report, which takes some memory too; samples may catch that."""
_PR_SET_PDEATHSIG = 1


StoppedFor = Literal["", "time", "memory"]


class Cancelled(Exception):
    """Raised when a watch was cancelled; the case has been killed."""


@dataclass(frozen=True)
class Watched:
    """What became of the process. `report` is the worker's own word, None if it ended without one."""

    report: Mapping[str, Any] | None
    exit_code: int
    stopped_for: StoppedFor
    """The limit at which the process was killed; empty where it ended by itself."""
    seconds: float
    host_peak: int
    """The highest resident memory known, exact where the kernel or the worker told it."""
    exact: bool
    family_peak: int
    """The highest sampled sum over the process and its children; 0 if it had none."""
    device_peak: int | None
    device_at_end: int | None
    timeline: tuple[tuple[float, int], ...]
    log: str
    kernel_killed: bool
    """Whether the kernel ended a process for want of memory while this one ran."""


def watch(
    source: str,
    limits: Limits,
    *,
    interpreter: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    device_bytes: Callable[[tuple[int, ...]], int | None] | None = None,
    cancel: threading.Event | None = None,
    marker: str | None = None,
    observe: Callable[[int], None] | None = None,
) -> Watched:
    """Run `source` in a fresh process to its end or to its limits, of time and of resident host memory.

    `device_bytes` says how much some processes hold on the GPU; `observe` is called with the resident bytes as they are
    sampled. `cancel` ends the process early, by `Cancelled`. `marker` names what the process may leave behind.
    """
    if not hasattr(os, "wait4"):
        raise BadInput("cases can be measured on Linux and macOS only.")
    marker = marker or new_marker()
    folder = case_folder(marker)
    if folder.exists():
        clean_up(marker)  # of a try whose watcher was killed
    try:
        folder.mkdir(mode=0o700)
        (folder / "case.py").write_text(source, encoding="utf-8")
        marked = {**(variables or os.environ), MARKER: marker}
        with _Run(folder, interpreter, marked, limits.bytes, device_bytes) as run:
            return run.to_the_end(limits.seconds, cancel or threading.Event(), observe or _ignore)
    finally:
        clean_up(marker)


class _Run:
    """One process from start to end. Not reused."""

    def __init__(
        self,
        folder: Path,
        interpreter: str,
        variables: Mapping[str, str],
        host_bytes: int | None,
        device_bytes: Callable[[tuple[int, ...]], int | None] | None,
    ) -> None:
        self._host_bytes = host_bytes
        self._device_bytes = device_bytes
        self._token = secrets.token_hex(16)
        self._own_peak_before = _own_peak()
        self._kills_before = kernel_oom_kills()
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [interpreter, str(_WORKER), str(write_end)],
                cwd=folder,
                env=dict(variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(write_end,),
                start_new_session=True,
                preexec_fn=_before_exec(host_bytes if device_bytes is None else None),
            )
        except (OSError, subprocess.SubprocessError) as error:
            os.close(read_end)
            reason = getattr(error, "strerror", None) or str(error).rstrip(".")
            raise BadInput(f"cannot start the Python at {interpreter}: {reason}.") from error
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._control: IO[bytes] = self._process.stdin
        self._output: IO[bytes] = self._process.stdout
        self._report_end = read_end
        self._started = time.monotonic()
        self._selector = selectors.DefaultSelector()
        for descriptor in (read_end, self._output.fileno()):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ)
        self._log = b""
        self._told = b""
        self._report: Mapping[str, Any] | None = None
        self._timeline = TimelineSampler()
        self._samples = 0
        self._children: tuple[int, ...] = ()
        self._sampled_peak = self._family_peak = 0
        self._device_peak: int | None = None
        self._device_last: int | None = None
        self._resident = 0
        self._exit_code: int | None = None
        self._rusage_peak = 0
        with contextlib.suppress(OSError):
            self._control.write(f"{self._token} {os.getpid()}\n".encode())
            self._control.flush()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._selector.close()
        for pipe in (self._control, self._output):
            with contextlib.suppress(OSError):
                pipe.close()
        os.close(self._report_end)

    def to_the_end(self, seconds: float, cancel: threading.Event, observe: Callable[[int], None]) -> Watched:
        deadline = self._started + seconds
        next_sample = self._started
        finished: float | None = None
        stopped_for: StoppedFor = ""
        while not self._has_ended():
            if cancel.is_set():
                self._kill()
                raise Cancelled
            self._read_pipes(_INTERVAL if finished else max(0.0, min(next_sample, deadline) - time.monotonic()))
            now = time.monotonic()
            if self._report is not None and finished is None:
                finished = now
                self._sample(now, look_for_children=True)
                # The worker has waited for this last look; now it may leave.
                with contextlib.suppress(OSError):
                    self._control.close()
                deadline = min(deadline, now + _PATIENCE_AFTER_KILL)
            elif finished is None and now >= next_sample:
                self._sample(now, look_for_children=self._samples % _SAMPLES_BETWEEN_FAMILY_LOOKS == 0)
                next_sample = max(next_sample + _INTERVAL, now)
                observe(self._resident)
            if finished is None and self._over_limit():
                stopped_for = "memory"
            elif now >= deadline:
                stopped_for = "" if finished is not None else "time"
            else:
                continue
            self._kill()
            break
        self._read_pipes(0.0)
        return self._result(stopped_for, (finished or time.monotonic()) - self._started)

    def _result(self, stopped_for: StoppedFor, seconds: float) -> Watched:
        kills = kernel_oom_kills()
        peak, exact = self._sampled_peak, False
        counters = self._report.get("counters") if self._report is not None else None
        reported = counters.get("host_peak") if isinstance(counters, dict) else None
        # What the kernel hands over at the end counts from before exec, so our own size hides anything smaller.
        by_kernel = self._rusage_peak if self._rusage_peak > self._own_peak_before and not self._family_peak else 0
        if (
            isinstance(reported, int)
            and not isinstance(reported, bool)
            and reported + _REPORT_TAKES >= self._sampled_peak
        ):
            peak, exact = reported, True
        elif by_kernel:
            peak, exact = max(peak, by_kernel), True
        return Watched(
            report=self._report,
            exit_code=self._exit_code if self._exit_code is not None else -signal.SIGKILL,
            stopped_for=stopped_for,
            seconds=seconds,
            host_peak=peak,
            exact=exact,
            family_peak=self._family_peak,
            device_peak=self._device_peak,
            device_at_end=self._device_last,
            timeline=self._timeline.points,
            log=self._log.decode("utf-8", errors="replace"),
            kernel_killed=kills is None or self._kills_before is None or kills > self._kills_before,
        )

    def _has_ended(self) -> bool:
        if self._exit_code is None:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._exit_code = self._process.returncode = os.waitstatus_to_exitcode(status)
                self._rusage_peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return self._exit_code is not None

    def _kill(self) -> None:
        """The case's whole process group; then wait, so that its memory is free before the next case starts."""
        if self._has_ended():
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE_AFTER_KILL
        while not self._has_ended() and time.monotonic() < until:
            time.sleep(0.002)

    def _sample(self, now: float, *, look_for_children: bool) -> None:
        self._samples += 1
        held = memory_of(self._process.pid)
        if held is None:
            return
        if look_for_children or self._children:
            self._children = descendants(self._process.pid)
        resident = held.resident
        self._sampled_peak = max(self._sampled_peak, held.peak)
        if self._children:
            resident = family_memory(self._process.pid, self._children)
            self._family_peak = max(self._family_peak, resident)
        shown = resident
        if self._device_bytes is not None:
            on_device = self._device_bytes((self._process.pid, *self._children))
            if on_device is not None:
                self._device_last = on_device
                self._device_peak = max(self._device_peak or 0, on_device)
                shown = on_device
        self._resident = resident
        self._timeline.add(now - self._started, shown)

    def _over_limit(self) -> bool:
        return self._host_bytes is not None and self._resident > self._host_bytes

    def _read_pipes(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            with contextlib.suppress(BlockingIOError):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    self._selector.unregister(key.fd)
                elif key.fd == self._report_end:
                    self._take_report(data)
                else:
                    self._log = (self._log + data)[-_LOG_KEPT:]

    def _take_report(self, data: bytes) -> None:
        """Only a whole line that starts with the token counts; the case may write anything else here."""
        *lines, rest = (self._told + data).split(b"\n")
        self._told = rest if len(rest) <= _LARGEST_REPORT else b""
        start = self._token.encode() + b" "
        for line in lines:
            if line.startswith(start) and self._report is None:
                with contextlib.suppress(ValueError, RecursionError):
                    content = json.loads(line[len(start) :])
                    self._report = content if isinstance(content, dict) else None


def _ignore(_: int) -> None:
    pass


def _own_peak() -> int:
    held = memory_of(os.getpid())
    return held.peak if held is not None else 0


def _before_exec(host_bytes: int | None) -> Callable[[], None] | None:
    """In the new process: die with the campaign, and fail rather than map far more than the limit. On a GPU there is no
    such limit, since the driver maps as much as it likes."""
    if not sys.platform.startswith("linux"):
        return None
    import resource

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    kill = int(signal.SIGKILL)
    _, highest = resource.getrlimit(resource.RLIMIT_DATA)
    most = highest if host_bytes is None else host_bytes + _DATA_SLACK
    most = most if highest == resource.RLIM_INFINITY else min(most, highest)

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, kill, 0, 0, 0)
        if host_bytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    return prepare
