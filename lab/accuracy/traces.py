"""Traces kept on disk, so that a benchmark of hours can be stopped, resumed and judged again by other rules."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from oomcast.capture import capture
from oomcast.errors import OomcastError, UnreadableFile
from oomcast.estimation import read_contribution
from oomcast.files import cache_folder
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.spec import JobKind
from oomcast.trace import Trace, read_trace, write_trace

from .cases import Case

__all__ = ["Captured", "TraceCache", "capturing_code", "default_folder", "trace_key"]

_LIBRARIES = ("torch", "timm", "torchvision", "transformers", "peft", "bitsandbytes", "torchao", "megatron-core")
_JOBS = "lab.accuracy"
"""The package of the classes that rebuild measured jobs."""


_STEPS_OF_A_SCRIPT = 2
"""The first step makes the optimizer's state: with fewer, nothing can be said of a training script."""


class Captured(NamedTuple):
    """A Trace with the seconds its capture took, or why there is none."""

    trace: Trace | None
    seconds: float
    error: str = ""


class TraceCache:
    """A folder of traces by job, place, library versions and the code that captures.

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
        stem = self.folder / f"{trace_key(case)}-{capturing_code(case)}"
        started = time.perf_counter()
        try:
            trace = capture(case.spec) if case.packed is None else read_contribution(case.packed).trace
        except OomcastError as error:
            seconds = time.perf_counter() - started
            _write_note(stem, case, seconds, str(error))
            return Captured(None, seconds, str(error))
        seconds = time.perf_counter() - started
        if trace.script is not None and trace.script.optimizer_steps < _STEPS_OF_A_SCRIPT:
            _write_note(stem, case, seconds, trace.script.reason)
            return Captured(None, seconds, trace.script.reason)
        write_trace(trace, stem.with_suffix(".trace"))
        _write_note(stem, case, seconds, "")
        return Captured(trace, seconds)

    def kept(self, case: Case) -> Path | None:
        """The note of the newest capture that may be used. A note is written last: the trace beside it is whole."""
        digest = "*" if self.accept_stale else capturing_code(case)
        found = self.folder.glob(f"{trace_key(case)}-{digest}.json")
        return max(found, key=lambda path: path.stat().st_mtime, default=None)


def _read(note: Path) -> Captured | None:
    """None for what is damaged: it is captured again."""
    try:
        content = json.loads(note.read_text(encoding="utf-8"))
        if content["error"]:
            return Captured(None, content["seconds"], content["error"])
        return Captured(read_trace(note.with_suffix(".trace")), content["seconds"])
    except (OSError, ValueError, KeyError, UnreadableFile):
        return None


def trace_key(case: Case) -> str:
    """Equal for cases with the same Trace."""
    spec, job = case.spec, case.workload.job
    named = repr(job.target) if job.kind is JobKind.OBJECT else job.reference
    decisive = [named, spec.workload.as_dict(), spec.place.as_dict(), _versions()]
    if case.packed is not None:
        decisive.append(hashlib.sha256(case.packed.read_bytes()).hexdigest())
    return hashlib.blake2b(json.dumps(decisive, sort_keys=True).encode(), digest_size=12).hexdigest()


def capturing_code(case: Case) -> str:
    """A digest of the code that decides this case's Trace; a job that is rebuilt here is part of it."""
    rebuilt = (_JOBS,) if case.workload.job.kind in (JobKind.OBJECT, JobKind.SCRIPT) else ()
    return source_digest(*TRACE_ROOMS, *rebuilt)


def default_folder() -> Path:
    return cache_folder() / "accuracy"


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
    note = {"case": case.name, "seconds": round(seconds, 3), "error": error}
    stem.with_suffix(".json").write_text(json.dumps(note), encoding="utf-8")
