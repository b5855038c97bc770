"""cuDNN's answers kept on disk, so that a second estimate need not load it. Several processes may share the file."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from ..._folders import cache_folder

__all__ = ["AnswerCache", "cache_folder", "key_of"]

SCHEMA = 1


def key_of(*parts: object) -> str:
    """A short name for plain data; equal data have equal names in every process."""
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


class AnswerCache:
    """Key → whole numbers. A cache that cannot be opened, read or written is one that knows nothing."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"cudnn-{SCHEMA}.sqlite"
        self._connection: sqlite3.Connection | None = None
        self._owner = 0

    def get(self, key: str) -> tuple[int, ...] | None:
        connection = self._open()
        if connection is None:
            return None
        try:
            row = connection.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            return None if row is None else tuple(int(n) for n in row[0].split())
        except (sqlite3.Error, ValueError):
            self._give_up()
            return None

    def put(self, key: str, answer: Sequence[int]) -> None:
        connection = self._open()
        if connection is None:
            return
        try:
            with connection:
                connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (key, " ".join(map(str, answer))))
        except sqlite3.Error:
            self._give_up()

    def close(self) -> None:
        if self._connection is not None and self._owner == os.getpid():
            self._connection.close()
        self._connection = None
        self._owner = 0

    def _open(self) -> sqlite3.Connection | None:
        if self._owner == os.getpid():
            return self._connection
        # The first use, or a fork: a connection must not be shared with the parent.
        self._owner = os.getpid()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = self._connect()
        except (OSError, sqlite3.Error):
            self._connection = None
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        try:
            return self._prepared()
        except sqlite3.DatabaseError as problem:
            if isinstance(problem, sqlite3.OperationalError):  # locked, read-only, no room: the file itself is fine
                raise
            with contextlib.suppress(OSError):
                self.path.unlink()
            return self._prepared()

    def _prepared(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=2.0, check_same_thread=False)
        try:
            # A power cut may cost the cache, which is made again; waiting for the disk would cost every estimate.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("CREATE TABLE IF NOT EXISTS answers (key TEXT PRIMARY KEY, answer TEXT) WITHOUT ROWID")
            connection.commit()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _give_up(self) -> None:
        """Go on without the disk for the rest of this process."""
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
