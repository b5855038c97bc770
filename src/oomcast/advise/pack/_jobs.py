"""A list of jobs as a person writes it: a TOML file with one `[[job]]` each.

A job is named by what `oomcast estimate` takes (`job`, `batch_size`, `precision`, …), or comes with an estimate that is
known already (`device_total`, with `low` and `high`), or with those of several estimators (`[job.estimates.NAME]`).
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any

from ...devices import find_gpu
from ...errors import BadInput, UnknownName, UnreadableFile
from ...units import parse_bytes
from ._demand import Demand

__all__ = ["ESTIMATE_OPTIONS", "GIVEN", "JobEntry", "JobList", "read_jobs"]

ESTIMATE_OPTIONS: Mapping[str, type | UnionType] = {
    "batch_size": int,
    "optimizer": str,
    "precision": str,
    "environment": str,
    "estimator": str,
    "framework": str,
    "input_shape": str,
    "seq_len": int,
    "channels_last": bool,
    "accumulation": int,
    "checkpointing": bool | str,
    "zero_grad": str,
    "set_to_none": bool,
    "steps": int,
    "alloc_conf": str,
    "cudnn_benchmark": bool,
    "time_limit": float,
    "coverage": float,
}
"""The keywords of `oomcast.estimate` that a job may set."""
GIVEN = "given"
"""The name of an estimate that stands in the job itself."""

_OWN = ("name", "job", "count", "device", "group", "duration", "arrival", "truth", "estimates")
_BOUNDS = ("device_total", "low", "high", "coverage")
_TOP = ("gpus", "risk", "max_per_gpu", "job")
_MOST_JOBS = 100_000
_WORDS: Mapping[type | UnionType, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    bool | str: "true, false, or names of modules",
}


@dataclass(frozen=True)
class JobEntry:
    """One job, checked. Bytes and seconds."""

    name: str
    job: str | None
    """What `oomcast estimate` takes; None where estimates are given instead."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    given: Mapping[str, Demand] = field(default_factory=dict, hash=False)
    """By estimator."""
    device: str | None = None
    """The only kind of card that it may run on."""
    group: str = ""
    """Jobs of one group err together: those of the same model do."""
    duration: float | None = None
    arrival: float | None = None
    truth: int | None = None


@dataclass(frozen=True)
class JobList:
    """A whole file."""

    jobs: tuple[JobEntry, ...]
    gpus: str | None = None
    risk: float | None = None
    max_per_gpu: int | None = None


def read_jobs(path: str | Path) -> JobList:
    """Read and check a job list; whatever is wrong is told with the file and the job."""
    content = _toml(Path(path))
    top = _Table(str(path), "the list", content)
    top.only(*_TOP)
    listed = content.get("job")
    if not isinstance(listed, list) or not listed or not all(isinstance(one, dict) for one in listed):
        raise top.error("has no job; write each as a table, [[job]], with a name and a job or a device_total.")
    entries: list[JobEntry] = []
    for number, values in enumerate(listed, 1):
        entries += _entries(_Table(str(path), f"job {values.get('name', number)!r}", values), Path(path).parent)
        if len(entries) > _MOST_JOBS:
            raise top.error(f"has more than {_MOST_JOBS} jobs.")
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise top.error(f"has two jobs called {entry.name!r}; give each its own name, or write count = 2.")
        names.add(entry.name)
    return JobList(
        tuple(entries),
        top.of("gpus", str),
        top.number("risk"),
        top.whole("max_per_gpu"),
    )


class _Table:
    """One table of the file; every reader says what is wrong with a value, and where."""

    def __init__(self, file: str, where: str, values: Mapping[str, Any]) -> None:
        self._file, self._where, self.values = file, where, values

    def error(self, text: str) -> UnreadableFile:
        return UnreadableFile(f"{self._file}: {self._where} {text}")

    def part(self, where: str, values: Mapping[str, Any]) -> _Table:
        return _Table(self._file, f"{self._where}, {where},", values)

    def only(self, *known: str) -> None:
        """A mistyped key must not be ignored."""
        for key in self.values:
            if key not in known:
                raise self.error(f"has an {UnknownName('key', key, known)}")

    def of(self, key: str, kind: type | UnionType) -> Any:
        value = self.values.get(key)
        right = isinstance(value, (int, float) if kind is float else kind)
        if value is not None and (not right or (isinstance(value, bool) and kind not in (bool, bool | str))):
            raise self.error(f"has {key} = {value!r}, which must be {_WORDS[kind]}.")
        return value

    def number(self, key: str) -> float | None:
        value = self.of(key, float)
        if value is None:
            return None
        if not (math.isfinite(value) and value >= 0):
            raise self.error(f"has {key} = {value!r}, which must not be negative.")
        return float(value)

    def whole(self, key: str) -> int | None:
        value: int | None = self.of(key, int)
        if value is not None and value < 1:
            raise self.error(f"has {key} = {value}, which must be at least 1.")
        return value

    def size(self, key: str) -> int | None:
        value = self.values.get(key)
        if isinstance(value, str):
            try:
                value = parse_bytes(value)
            except BadInput as error:
                raise self.error(f"has a wrong {key}: {error}") from None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.error(f"has {key} = {value!r}, which must be a size such as '8GiB' or a number of bytes.")
        return value


def _entries(table: _Table, folder: Path) -> list[JobEntry]:
    table.only(*_OWN, *_BOUNDS, *ESTIMATE_OPTIONS)
    name = table.of("name", str)
    if not name or not name.strip():
        raise table.error("has no name; add one, so that the answer can speak of it.")
    job, given = table.of("job", str), _given(table)
    if (job is None) == (not given):
        raise table.error(
            "has both a job and an estimate; keep one of them."
            if given
            else "has neither a job to estimate nor a device_total; add one of them."
        )
    options = {key: table.of(key, kind) for key, kind in ESTIMATE_OPTIONS.items() if key in table.values}
    if given and set(options) - {"coverage"}:
        raise table.error(f"has {min(set(options) - {'coverage'})}, which says nothing where the estimate is given.")
    if job is not None and "batch_size" not in options:
        raise table.error("has no batch_size; add it.")
    if job is not None:
        job = _beside(folder, job)
    device = table.of("device", str)
    if device is not None:
        try:
            device = find_gpu(device).name
        except BadInput as error:
            raise table.error(f"has an unusable device: {error}") from None
    duration = table.number("duration")
    if duration == 0:
        raise table.error("has a duration of 0; give the seconds that it runs, or leave it out.")
    entry = JobEntry(
        name=name,
        job=job,
        options=options,
        given=given,
        device=device,
        group=table.of("group", str) or job or name,
        duration=duration,
        arrival=table.number("arrival"),
        truth=table.size("truth"),
    )
    count = table.whole("count") or 1
    return [entry] if count == 1 else [_numbered(entry, number) for number in range(1, count + 1)]


def _numbered(entry: JobEntry, number: int) -> JobEntry:
    return JobEntry(**{**entry.__dict__, "name": f"{entry.name}#{number}"})


def _beside(folder: Path, job: str) -> str:
    """A job file is named from the list's own folder, wherever the command is run."""
    beside = folder / job
    return str(beside) if ":" not in job and beside.is_file() else job


def _given(table: _Table) -> dict[str, Demand]:
    found = {}
    if any(key in table.values for key in ("device_total", "low", "high")):
        found[GIVEN] = _demand(table)
    named = table.values.get("estimates", {})
    if not isinstance(named, dict) or not all(isinstance(one, dict) for one in named.values()):
        raise table.error("has estimates that are not tables; write each as [job.estimates.NAME] with a device_total.")
    for estimator, values in named.items():
        part = table.part(f"estimate {estimator!r}", values)
        part.only(*_BOUNDS)
        found[estimator] = _demand(part)
    return found


def _demand(table: _Table) -> Demand:
    total, coverage = table.size("device_total"), table.of("coverage", float)
    if total is None:
        raise table.error("has bounds but no device_total; add it.")
    try:
        return Demand.from_bounds(
            total, table.size("low"), table.size("high"), 0.95 if coverage is None else float(coverage)
        )
    except BadInput as error:
        raise table.error(f"cannot be used: {error}") from None


def _toml(path: Path) -> dict[str, Any]:
    # The standard library has it from 3.11 on; the same code under another name serves 3.10.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a TOML file: {error}.") from None
    return values
