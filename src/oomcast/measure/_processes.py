"""What the operating system tells of processes: memory held, who is alive, who belongs to whom. Linux by /proc, others
by `ps`, which knows less."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

__all__ = [
    "Held",
    "available_memory",
    "descendants",
    "end_marked",
    "host_identity",
    "is_alive",
    "kernel_oom_kills",
    "memory_of",
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
    """None if the process has ended."""
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


def proportional_memory_of(pid: int) -> int:
    """Resident memory in which a page shared by n processes counts as 1/n: what forked children really add."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    held = memory_of(pid)
    return held.resident if held is not None else 0


def descendants(pid: int) -> tuple[int, ...]:
    """Children, grandchildren and so on, as far as the kernel links them."""
    found: list[int] = []
    look = [pid]
    while look:
        parent = look.pop()
        try:
            threads = os.listdir(f"/proc/{parent}/task")
        except OSError:
            continue
        for thread in threads:
            children = [int(child) for child in _read(f"/proc/{parent}/task/{thread}/children").split()]
            found += children
            look += children
    return tuple(found)


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
    stat = _read(f"/proc/{pid}/stat")
    # The second field is the program's name in brackets and may hold anything.
    fields = stat[stat.rfind(b")") + 1 :].split()
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
