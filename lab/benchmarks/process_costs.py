"""What a process and all that it started cost: resident memory and processor time, read from /proc."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

__all__ = ["PeakResident", "processor_seconds"]


class PeakResident:
    """The largest resident memory of a process and all that it started, looked at ten times a second.

    `counted_from_now` leaves out what the process itself holds already: one that has loaded torch for its own sake.
    """

    def __init__(self, pid: int, counted_from_now: bool = False) -> None:
        self._pid = pid
        self._before = _resident_kib(pid) if counted_from_now else 0
        self._peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakResident:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mib(self) -> float:
        return self._peak / 1024

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            own = _resident_kib(self._pid) - self._before
            self._peak = max(self._peak, own + sum(map(_proportional_kib, _descendants(self._pid))))


def processor_seconds() -> float:
    """Of this process, and of the processes below it with those that they waited for."""
    ticks = 0
    for pid in _descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def _resident_kib(pid: int) -> int:
    return _field(pid, "status", "VmRSS:")


def _proportional_kib(pid: int) -> int:
    """Pages that a fork shares with its parent count once."""
    return _field(pid, "smaps_rollup", "Pss:")


def _field(pid: int, file: str, name: str) -> int:
    try:
        for line in Path(f"/proc/{pid}/{file}").read_text(encoding="ascii").splitlines():
            if line.startswith(name):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def _descendants(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    found = [int(child) for child in children]
    return found + [grandchild for child in found for grandchild in _descendants(child)]
