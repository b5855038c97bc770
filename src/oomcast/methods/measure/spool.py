"""Measurements that the database would not take, kept in local files until it does."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .processes import host_identity, is_alive, process_start

__all__ = ["Spool", "spool_folder"]


def spool_folder(url: str, *, sqlite_file: str | None) -> Path:
    """Beside a SQLite file; for a server, in the user's own state folder."""
    if sqlite_file is not None:
        return Path(sqlite_file + ".spool")
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "oomcast" / "spool" / hashlib.sha256(url.encode()).hexdigest()[:16]


class Spool:
    """A folder with one file per process, each line a measurement; only the dead and oneself are emptied."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def file(self) -> Path:
        host = hashlib.sha256(host_identity().encode()).hexdigest()[:16]
        return self.folder / f"{host}-{os.getpid()}-{process_start(os.getpid())}.jsonl"

    def add(self, plain: Mapping[str, Any]) -> Path:
        """Keep one measurement; on disk when this returns."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.file.open("ab") as file:
            file.write(json.dumps(plain).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return self.file

    def empty(self, take: Callable[[Mapping[str, Any]], bool]) -> None:
        """Hand every kept measurement to `take`, which must be content to see one twice and says whether it has it."""
        for path in sorted(self.folder.glob("*.jsonl")) if self.folder.is_dir() else ():
            if self._belongs_to_another(path):
                continue
            left = []
            for line in path.read_bytes().split(b"\n"):
                try:
                    plain = json.loads(line)
                except ValueError:
                    continue  # a process killed while it wrote: its case counts as not done and is run again
                if not take(plain):
                    left.append(line + b"\n")
            if left:
                path.write_bytes(b"".join(left))
            else:
                path.unlink(missing_ok=True)

    def _belongs_to_another(self, path: Path) -> bool:
        host, _, rest = path.stem.partition("-")
        pid, _, started = rest.partition("-")
        if path == self.file or not pid.isdecimal():
            return path != self.file
        ours = host == self.file.stem.partition("-")[0]
        # Another boot or container of this machine has ended its processes with it, or shares the folder while
        # alive; a file read twice does no harm, since the first result of a case stays.
        return ours and is_alive(int(pid), started)
