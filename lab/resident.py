"""How much memory a process holds, with all that it has started, as Linux tells it in /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["resident"]


def resident(pid: int) -> Iterator[int]:
    """Bytes of the process, and of each that it or one of its own has started."""
    ours = {pid}
    for folder in sorted(Path("/proc").glob("[0-9]*"), key=lambda one: int(one.name)):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if int(folder.name) in ours or parent in ours:
                ours.add(int(folder.name))
                yield int((folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            continue
