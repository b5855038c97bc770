"""What the operating system tells of processes: memory held, who is alive, who belongs to whom. Linux by /proc, others
by `ps`, which knows less."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "MARKER",
    "Held",
    "available_memory",
    "case_folder",
    "clean_up",
    "descendants",
    "end_marked",
    "family_memory",
    "host_identity",
    "is_alive",
    "kernel_oom_kills",
    "lives_in_its_parent",
    "memory_of",
    "new_marker",
    "process_start",
    "proportional_memory_of",
    "total_memory",
]

_LINUX = sys.platform.startswith("linux")


@dataclass(frozen=True)
class Held:
    """Resident memory of one process: now, and the highest so far."""

    resident: int
    peak: int


def memory_of(pid: int) -> Held | None:
    """What one process holds; None if it has ended."""
    if not _LINUX:
        return _memory_by_ps(pid)
    status = _read(f"/proc/{pid}/status")
    resident = peak = 0
    for line in status.splitlines():
        if line.startswith(b"VmRSS:"):
            resident = int(line.split()[1]) * 1024
        elif line.startswith(b"VmHWM:"):
            peak = int(line.split()[1]) * 1024
    return Held(resident, max(peak, resident)) if peak or resident else None


def family_memory(pid: int, children: tuple[int, ...]) -> int:
    """Resident memory of a process and its children, in which every page counts once.

    A child that is about to run another program (vfork, posix_spawn, Python's subprocess) lives in its parent's own
    address space until then. The kernel maps that once but shows it under both numbers, each time in full, so such a
    child is left out: it holds nothing of its own.
    """
    return sum(proportional_memory_of(one) for one in (pid, *(c for c in children if not lives_in_its_parent(c))))


def lives_in_its_parent(pid: int) -> bool:
    """Whether a process still shares its parent's address space, page tables and all (CLONE_VM).

    A forked child does not: it has page tables of its own, in which shared pages count in proportion. The kernel is
    asked (kcmp); where a container forbids that, equal figures to the page serve: a forked child begins without the
    pages of mapped files, and so with less. What has once left its parent's address space never comes back, so a
    figure that is read after this answer is the child's own.
    """
    parent = _parent_of(pid)
    if parent is None:
        return False
    answer = _compare_address_spaces(pid, parent)
    if answer is not None:
        return answer
    own = _read(f"/proc/{pid}/statm")
    return bool(own.strip()) and own == _read(f"/proc/{parent}/statm")


def _parent_of(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return int(fields[1]) if len(fields) > 1 else None


def _stat_fields(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on; the second is the program's name and may hold anything."""
    stat = _read(f"/proc/{pid}/stat")
    return stat[stat.rfind(b")") + 1 :].split()


_KCMP = {"x86_64": 312, "aarch64": 272, "riscv64": 272, "ppc64le": 354, "s390x": 343}
"""The number of the system call, which the C library has no function for."""
_KCMP_VM = 1


@functools.cache
def _kcmp() -> Callable[[int, int], int] | None:
    number = _KCMP.get(platform.machine()) if _LINUX else None
    if number is None:
        return None
    syscall = ctypes.CDLL(None).syscall
    return lambda first, second: int(syscall(number, first, second, _KCMP_VM, 0, 0))


def _compare_address_spaces(first: int, second: int) -> bool | None:
    """Whether two processes have the same; None where the kernel does not say."""
    compare = _kcmp()
    order = -1 if compare is None else compare(first, second)
    return None if order < 0 else order == 0


def proportional_memory_of(pid: int) -> int:
    """Resident memory in which a page shared by n processes counts as 1/n: what forked children really add."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    held = memory_of(pid)
    return held.resident if held is not None else 0


def descendants(pid: int) -> tuple[int, ...]:
    """Children, grandchildren and so on, as far as the kernel links them."""
    family: list[int] = []
    look = [pid]
    while look:
        parent = look.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            children = [int(child) for child in _read(f"/proc/{parent}/task/{thread}/children").split()]
            family += children
            look += children
    return tuple(family)


def end_marked(marker: str) -> int:
    """Kill every process that carries `marker` (`NAME=value`) in its environment: what a case started and left behind,
    wherever it hid. Returns how many there were."""
    if not _LINUX:
        return 0
    ended = 0
    wanted = marker.encode()
    assert len(wanted) > 32, "a short text could stand in anyone's environment"
    for name in os.listdir("/proc"):
        if name.isdecimal() and int(name) != os.getpid() and wanted in _read(f"/proc/{name}/environ").split(b"\0"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(int(name), signal.SIGKILL)
                ended += 1
    return ended


def process_start(pid: int) -> str:
    """A text that differs when the number is used again by another process; empty where it cannot be known."""
    fields = _stat_fields(pid)
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return ""
    return fields[19].decode()


def is_alive(pid: int, started: str) -> bool:
    """Whether the process of that number and start is still running on this host."""
    if _LINUX:
        return process_start(pid) == started != ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


@functools.cache
def host_identity() -> str:
    """Names the set of processes that `is_alive` can see: a reboot or another container gives another text."""
    boot = _read("/proc/sys/kernel/random/boot_id").decode().strip()
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return " ".join(part for part in (socket.gethostname(), boot, namespace) if part)


@functools.cache
def total_memory() -> int:
    """Bytes of memory that this process can count on: of the machine, or of the container if that is less."""
    machine = _meminfo("MemTotal")
    if machine is None:
        try:
            machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError):
            machine = 0
    limit = _container_limit()
    return machine if limit is None else min(machine, limit)


def available_memory() -> int:
    """Bytes that can be taken now without swapping."""
    available = _meminfo("MemAvailable")
    if available is None:
        return total_memory() // 2
    limit, used = _container_limit(), _container_use()
    return available if limit is None or used is None else max(0, min(available, limit - used))


def kernel_oom_kills() -> int | None:
    """How often the kernel has killed for want of memory since it started; None where it does not tell."""
    for line in _read("/proc/vmstat").splitlines():
        if line.startswith(b"oom_kill "):
            return int(line.split()[1])
    return None


def _meminfo(name: str) -> int | None:
    wanted = name.encode() + b":"
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith(wanted):
            return int(line.split()[1]) * 1024
    return None


def _container_limit() -> int | None:
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _read(path).strip()
        if text.isdigit() and int(text) < 1 << 60:
            return int(text)
    return None


def _container_use() -> int | None:
    """Without cached files, which the kernel drops when memory is wanted."""
    for folder, use in (("/sys/fs/cgroup", "memory.current"), ("/sys/fs/cgroup/memory", "memory.usage_in_bytes")):
        text = _read(f"{folder}/{use}").strip()
        if text.isdigit():
            facts = dict(line.split() for line in _read(f"{folder}/memory.stat").splitlines())
            return int(text) - int(facts.get(b"total_inactive_file", facts.get(b"inactive_file", b"0")))
    return None


_ps_seen: dict[int, tuple[float, Held]] = {}


def _memory_by_ps(pid: int) -> Held | None:
    """Starting `ps` costs milliseconds, so an answer serves for a tenth of a second."""
    at, known = _ps_seen.get(pid, (0.0, Held(0, 0)))
    if time.monotonic() - at < 0.1:
        return known
    answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, check=False).stdout.strip()
    if not answer.isdigit():
        _ps_seen.pop(pid, None)
        return None
    resident = int(answer) * 1024
    held = Held(resident, max(resident, known.peak))
    _ps_seen[pid] = (time.monotonic(), held)
    return held


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall() or b""
    except OSError:
        return b""


# What a case may leave behind, processes and its folder, is known by its marker.


MARKER = "OOMCAST_CASE"
"""The variable by which processes that a case started are known as its own."""


def new_marker() -> str:
    return secrets.token_hex(16)


def case_folder(marker: str) -> Path:
    return Path(tempfile.gettempdir()) / f"oomcast-case-{marker}"


def clean_up(marker: str) -> None:
    """Kill and remove what is left on this machine of the case with that marker. Anything but a marker of ours is left
    alone: it may come from a database that others can write to, and names what is deleted."""
    if not re.fullmatch(r"[0-9a-f]{32}", marker):
        return
    end_marked(f"{MARKER}={marker}")
    shutil.rmtree(case_folder(marker), ignore_errors=True)
