"""Convolution workspaces asked of cuDNN's own heuristics, for a GPU that need not be here.

cuDNN runs in a process of its own: it wants a libcuda under that name, which must not get into a process that may have
a CUDA build of torch; its libraries take 300 MB; and a crash in them must not be ours. A question costs about 4 ms, the
first one 0.5 s; both are saved when the answer is on disk.

Answers are kept in one SQLite file, which several processes may share (`AnswerCache`).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes.util
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import selectors
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...children import close_pipes, forget_in_forks, module_command
from ...devices import Gpu
from ...errors import OomcastError
from ...files import cache_folder
from .library import library_path
from .query import Query

__all__ = ["Answer", "AnswerCache", "Cudnn", "CudnnUnavailable", "cache_folder", "key_of", "shared_cudnn"]

PACKAGES = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "nvidia-cudnn-cu11")
OLDEST = (9, 8)
"""The first cuDNN that answers for a described GPU."""
START_LIMIT = 60.0
ANSWER_LIMIT = 30.0
MOST_CRASHES = 3
"""After so many, cuDNN is not asked again by this process."""


class CudnnUnavailable(OomcastError):
    """cuDNN's libraries are not installed, too old, or do not start here."""


class Answer(NamedTuple):
    plans: tuple[int, ...]
    """Workspaces in the order in which plans are tried on a full device: each smaller than the one before."""
    largest: int
    """The largest of all plans: what `cudnn.benchmark` tries."""


class Cudnn:
    """The installed cuDNN. Raises CudnnUnavailable if there is none that can answer."""

    is_general = True

    def __init__(self, cache: AnswerCache | None = None) -> None:
        if library_path() is None and not _system_has_it():
            raise CudnnUnavailable("cuDNN is not installed (nvidia-cudnn-cu12).")
        self._cache = cache
        self._known: dict[str, Answer | None] = {}
        self._worker: _Worker | None = None
        self._lock = threading.Lock()
        self._crashes = 0
        self.version = _installed_version() or self._started().version
        if self.version < OLDEST:
            raise CudnnUnavailable(
                f"cuDNN {_text(self.version)} only answers for a GPU that is present; 9.8 is needed."
            )

    @property
    def name(self) -> str:
        return f"cudnn {_text(self.version)}"

    def start(self) -> None:
        """Load the libraries now, to have them ready later."""
        with self._lock:
            self._started()

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True, deterministic: bool = False) -> Answer | None:
        """What the plans of this convolution take on that GPU; None if cuDNN has no plan or cannot answer."""
        tf32 = tf32 or query.dtype != "float32"
        question = {"device": gpu.cudnn_properties(), "tf32": tf32, "query": query}
        parts: list[object] = [self.version, *question.values()]
        if deterministic:
            question["deterministic"] = True
            parts.append("deterministic")
        key = key_of(*parts)
        with self._lock:
            if key not in self._known:
                self._known[key] = self._cached(key) or self._asked(key, question)
            return self._known[key]

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        self._worker = None
        if self._cache is not None:
            self._cache.close()

    def _cached(self, key: str) -> Answer | None:
        kept = self._cache.get(key) if self._cache is not None else None
        return Answer(tuple(kept[1:]), kept[0]) if kept is not None and len(kept) > 1 else None

    def _asked(self, key: str, question: dict[str, Any]) -> Answer | None:
        if self._crashes >= MOST_CRASHES:
            return None
        worker = self._started()
        reply = worker.ask(question)
        if reply is None:  # it crashed or hangs on this one; the next question gets a fresh process
            worker.stop()
            self._worker = None
            self._crashes += 1
            return None
        if "error" in reply:
            return None
        answer = Answer(tuple(reply["plans"]), reply["largest"])
        if self._cache is not None:
            self._cache.put(key, (answer.largest, *answer.plans))
        return answer

    def _started(self) -> _Worker:
        if self._worker is None or not self._worker.is_ours():
            self._worker = _Worker()
            atexit.register(self._worker.stop)
        return self._worker


class _Worker:
    """The process with the libraries."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._buffer = b""
        self._process = subprocess.Popen(
            module_command("oomcast.simulate.cudnn.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the libraries talk about every symbol that the stub lacks
            start_new_session=True,
        )
        forget_in_forks(self)
        hello = self._read(START_LIMIT)
        if hello is None or "version" not in hello:
            self.stop()
            reason = (hello or {}).get("error") or "its process ended while it was loading"
            raise CudnnUnavailable(f"cuDNN does not start here: {reason}.")
        self.version = _split(hello["version"])

    def is_ours(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, question: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            return None
        return self._read(ANSWER_LIMIT)

    def stop(self) -> None:
        if self._owner != os.getpid():
            return
        self._process.kill()
        self._process.wait()
        close_pipes(self._process)

    def forget(self) -> None:
        """In a fork: the process is the parent's."""
        close_pipes(self._process)
        self._process.returncode = 0  # not ours to wait for

    def _read(self, limit: float) -> dict[str, Any] | None:
        """One line, or None if none came in time."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not selector.select(remaining):
                    return None
                chunk = os.read(descriptor, 1 << 16)
                if not chunk:
                    return None
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        content = json.loads(line)
        return content if isinstance(content, dict) else None


@functools.cache
def shared_cudnn() -> Cudnn:
    """The one of this process, with the user's cache on disk. Raises CudnnUnavailable."""
    return Cudnn(AnswerCache(cache_folder()))


def _installed_version() -> tuple[int, int] | None:
    """From the packages' metadata, so that a warm cache needs no library; None for a cuDNN installed otherwise."""
    for package in PACKAGES:
        try:
            match = re.match(r"(\d+)\.(\d+)", importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            continue
        if match:
            return int(match.group(1)), int(match.group(2))
    return None


@functools.cache
def _system_has_it() -> bool:
    """Kept, as ctypes starts a compiler and a linker to look, and every simulation asks."""
    return sys.platform == "linux" and ctypes.util.find_library("cudnn_graph") is not None


def _split(version: int) -> tuple[int, int]:
    """cuDNN writes 9.20.0 as 92000 (8.9.2 as 8902)."""
    return (version // 10000, version // 100 % 100) if version >= 90000 else (version // 1000, version // 100 % 10)


def _text(version: tuple[int, int]) -> str:
    return "{}.{}".format(*version)


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
