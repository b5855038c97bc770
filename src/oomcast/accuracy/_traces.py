"""Traces kept on disk, so that a benchmark of hours can be stopped, resumed and judged again by other rules."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from importlib import metadata, resources
from pathlib import Path
from typing import NamedTuple

from ..capture import capture
from ..devices import find_gpu
from ..errors import OomcastError, UnreadableFile
from ..simulate.cudnn._cache import cache_folder
from ..trace import Trace, read_trace, write_trace
from ..workload import JobKind
from ._cases import Case

__all__ = ["Captured", "TraceCache", "default_folder", "source_digest", "trace_key"]

_LIBRARIES = ("torch", "timm", "torchvision", "transformers")
_CAPTURING = ("capture", "zoo", "trace")
_TIME_LIMIT = 900.0


class Captured(NamedTuple):
    """A Trace with the seconds its capture took, or why there is none."""

    trace: Trace | None
    seconds: float
    error: str = ""


class TraceCache:
    """A folder of traces by workload, GPU, library versions and the code that captures.

    `accept_stale` takes traces of other versions of that code too: for work on rules that come after it.
    """

    def __init__(self, folder: Path, accept_stale: bool = False) -> None:
        self.folder = folder / "traces"
        self.accept_stale = accept_stale
        self.folder.mkdir(parents=True, exist_ok=True)

    def get(self, case: Case) -> Captured:
        """Read it, or capture it and keep it. A job that cannot be captured is remembered too."""
        kept = self.kept(case)
        known = _read(kept) if kept is not None else None
        if known is not None:
            return known
        stem = self.folder / f"{trace_key(case)}-{_capture_digest(case)}"
        started = time.perf_counter()
        try:
            trace = capture(case.workload, find_gpu(case.gpu), _TIME_LIMIT)
        except OomcastError as error:
            seconds = time.perf_counter() - started
            _write_note(stem, case, seconds, str(error))
            return Captured(None, seconds, str(error))
        seconds = time.perf_counter() - started
        write_trace(trace, stem.with_suffix(".trace"))
        _write_note(stem, case, seconds, "")
        return Captured(trace, seconds)

    def kept(self, case: Case) -> Path | None:
        """The note of the newest capture that may be used. A note is written last: the trace beside it is whole."""
        digest = "*" if self.accept_stale else _capture_digest(case)
        found = self.folder.glob(f"{trace_key(case)}-{digest}.json")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _read(note: Path) -> Captured | None:
    """None for what is damaged: it is captured again."""
    try:
        told = json.loads(note.read_text(encoding="utf-8"))
        if told["error"]:
            return Captured(None, told["seconds"], told["error"])
        return Captured(read_trace(note.with_suffix(".trace")), told["seconds"])
    except (OSError, ValueError, KeyError, UnreadableFile):
        return None


def trace_key(case: Case) -> str:
    """Equal for cases with the same Trace."""
    plain = {key: value for key, value in case.workload.as_dict().items() if key != "job"}
    job = case.workload.job
    named = repr(job.target) if job.kind is JobKind.OBJECT else job.reference
    told = [named, plain, case.gpu, _versions()]
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=12).hexdigest()


def default_folder() -> Path:
    return cache_folder() / "accuracy"


@functools.cache
def source_digest(parts: tuple[str, ...]) -> str:
    """Of the source of these rooms or files of oomcast: what they compute changes with it."""
    root = Path(str(resources.files("oomcast")))
    digest = hashlib.blake2b(digest_size=4)
    for part in parts:
        place = root / part
        for path in [place] if place.is_file() else _files(place):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(room: Path) -> list[Path]:
    """Source and data."""
    return [path for kind in ("*.py", "*.json", "*.bin") for path in sorted(room.rglob(kind))]


def _capture_digest(case: Case) -> str:
    """Of the rooms that capture, and of the files that describe and build this job."""
    job = case.workload.job.target
    own = f"{type(job).__module__.rpartition('.')[2]}.py"
    building = (own, *getattr(job, "sources", ())) if case.workload.job.kind is JobKind.OBJECT else ()
    return source_digest((*_CAPTURING, *(f"accuracy/{name}" for name in building)))


@functools.cache
def _versions() -> tuple[str, ...]:
    found = []
    for library in _LIBRARIES:
        try:
            found.append(f"{library} {metadata.version(library)}")
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def _write_note(stem: Path, case: Case, seconds: float, error: str) -> None:
    told = {"case": case.name, "seconds": round(seconds, 3), "error": error}
    stem.with_suffix(".json").write_text(json.dumps(told), encoding="utf-8")
