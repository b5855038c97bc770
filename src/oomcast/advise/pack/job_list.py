"""A list of jobs as a person writes it: a TOML file with one `[[job]]` each.

A job is named by what `oomcast estimate` takes (`job`, `batch_size`, `precision`, …), or comes with an estimate that is
known already (`device_total`, with `low` and `high`), or with those of several estimators (`[job.estimates.NAME]`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...devices import find_gpu
from ...errors import BadInput
from ...spec import DESCRIPTIONS, options_of
from ...tables import Table, read_toml
from .demand import Demand

__all__ = ["GIVEN", "JobEntry", "JobList", "read_jobs"]

GIVEN = "given"
"""The name of an estimate that stands in the job itself."""

_OWN = ("name", "job", "count", "device", "group", "duration", "arrival", "truth", "estimates")
_ESTIMATOR = "estimator"
_BOUNDS = ("device_total", "low", "high", "coverage")
_TOP = ("gpus", "risk", "max_per_gpu", "job")
_MOST_JOBS = 100_000


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


def read_jobs(path: str | Path, descriptions: Sequence[type] = DESCRIPTIONS) -> JobList:
    """Read and check a job list; whatever is wrong is told with the file and the job.

    A job may set the options that the descriptions declare.
    """
    content = read_toml(Path(path))
    top = Table(str(path), "the list", content)
    top.only(*_TOP)
    listed = content.get("job")
    if not isinstance(listed, list) or not listed or not all(isinstance(table, dict) for table in listed):
        raise top.error("has no job; write each as a table, [[job]], with a name and a job or a device_total.")
    entries: list[JobEntry] = []
    for number, values in enumerate(listed, 1):
        entries += _entries(
            Table(str(path), f"job {values.get('name', number)!r}", values), Path(path).parent, descriptions
        )
        if len(entries) > _MOST_JOBS:
            raise top.error(f"has more than {_MOST_JOBS} jobs.")
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise top.error(f"has two jobs called {entry.name!r}; give each its own name, or write count = 2.")
        names.add(entry.name)
    return JobList(
        tuple(entries),
        top.text("gpus", None),
        top.number("risk", None),
        top.whole("max_per_gpu", None),
    )


def _entries(table: Table, folder: Path, descriptions: Sequence[type]) -> list[JobEntry]:
    known = {declared.name: declared for declared in options_of(*descriptions) if declared.name not in _OWN}
    table.only(*_OWN, *_BOUNDS, *known, _ESTIMATOR)
    name = table.text("name", None)
    if name is None:
        raise table.error("has no name; add one, so that the answer can speak of it.")
    job, given = table.text("job", None), _given(table)
    if (job is None) == (not given):
        raise table.error(
            "has both a job and an estimate; keep one of them."
            if given
            else "has neither a job to estimate nor a device_total; add one of them."
        )
    options = {key: table.option(one) for key, one in known.items() if key in table.values}
    estimator = table.text(_ESTIMATOR, None)
    if estimator is not None:
        options[_ESTIMATOR] = estimator
    if given and set(options) - {"coverage"}:
        raise table.error(f"has {min(set(options) - {'coverage'})}, which says nothing where the estimate is given.")
    if job is not None and "batch_size" not in options:
        raise table.error("has no batch_size; add it.")
    if job is not None:
        job = _beside(folder, job)
    device = table.text("device", None)
    if device is not None:
        try:
            device = find_gpu(device).name
        except BadInput as error:
            raise table.error(f"has an unusable device: {error}") from None
    duration = table.number("duration", None)
    if duration == 0:
        raise table.error("has a duration of 0; give the seconds that it runs, or leave it out.")
    entry = JobEntry(
        name=name,
        job=job,
        options=options,
        given=given,
        device=device,
        group=table.text("group", "") or job or name,
        duration=duration,
        arrival=table.number("arrival", None),
        truth=table.size("truth"),
    )
    count = table.whole("count", 1, most=_MOST_JOBS)
    return [entry] if count == 1 else [_numbered(entry, number) for number in range(1, count + 1)]


def _numbered(entry: JobEntry, number: int) -> JobEntry:
    return JobEntry(**{**entry.__dict__, "name": f"{entry.name}#{number}"})


def _beside(folder: Path, job: str) -> str:
    """A job file is named from the list's own folder, wherever the command is run."""
    beside = folder / job
    return str(beside) if ":" not in job and os.path.isfile(beside) else job


def _given(table: Table) -> dict[str, Demand]:
    demands = {}
    if any(key in table.values for key in ("device_total", "low", "high")):
        demands[GIVEN] = _demand(table)
    named = table.values.get("estimates", {})
    if not isinstance(named, dict) or not all(isinstance(table, dict) for table in named.values()):
        raise table.error("has estimates that are not tables; write each as [job.estimates.NAME] with a device_total.")
    for estimator, values in named.items():
        part = Table(table.file, f"{table.where}, estimate {estimator!r}", values)
        part.only(*_BOUNDS)
        demands[estimator] = _demand(part)
    return demands


def _demand(table: Table) -> Demand:
    total, coverage = table.size("device_total"), table.number("coverage", 0.95)
    if total is None:
        raise table.error("has bounds but no device_total; add it.")
    try:
        return Demand.from_bounds(total, table.size("low"), table.size("high"), coverage)
    except BadInput as error:
        raise table.error(f"cannot be used: {error}") from None
