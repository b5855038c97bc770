"""This folder is on the path of all tests: helpers that several rooms share live beside this file.

Two promises of the whole suite are kept here: it runs on every machine, and it leaves no process behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Some virtual machines announce AMX and cannot run it: oneDNN's bf16 kernels then die of an illegal instruction. The
# variable must stand before torch is loaded, here and in every process that a test starts.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")

# A busy machine is slow, not wrong.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# A shell that starts the suite in the background has it ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MARK = "OOMCAST_TEST_SESSION"
_GRACE = 10.0
"""Seconds that processes have to end by themselves, once the tests are over."""


def pytest_sessionstart() -> None:
    # A session within a session (the tests of the pytest plugin) has a mark of its own.
    os.environ[_MARK] = uuid.uuid4().hex


_found_in_workers: list[str] = []


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Whatever the tests started must be gone: a Ray cluster once stayed for days."""
    time.sleep(0.1)  # while the kernel sets up a program that was started this very moment, its mark is not there yet
    left = _left_behind()
    deadline = time.monotonic() + _GRACE
    while left and time.monotonic() < deadline:
        time.sleep(0.2)
        left = _left_behind()
    for process in left:
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    found = [f"process {process}: {command}" for process, command in left.items()]
    if hasattr(session.config, "workeroutput"):  # one of several workers: the process that started it tells
        session.config.workeroutput["left_behind"] = found
        return
    for process in found + _found_in_workers:
        print(f"\nleft behind by the tests: {process}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist has ended."""
    _found_in_workers.extend(getattr(node, "workeroutput", {}).get("left_behind", ()))


def _left_behind() -> dict[int, str]:
    """Living processes of this session but for our own capture servers, which end with us: id → command line."""
    mark = f"{_MARK}={os.environ.get(_MARK, '')}".encode()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        process = int(folder.name)
        try:
            if process == os.getpid() or mark not in (folder / "environ").read_bytes():
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        ours = parent == os.getpid() and "oomcast." in command
        if command and not ours:
            found[process] = command
    return found
