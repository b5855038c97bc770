"""Some measured runs, each with its source, so that the benchmark runs where there are no other files.

`measured.json` has `schema`, `sources` (name → repository, commit, file) and `rows`. A row has its `source` and what
finds it there (`where`), the `data` set, `row` and `campaign` it belongs to, its model `family`, `gpu`, software
`stack`, what was read (`measure`), the `measured` bytes (null where the run failed, `ran` false), the `job`, and what
differs from a plain `workload`. The job is a name such as `zoo:vgg16`, or a class of this room with its settings.
`python -m lab figures DIR` makes the file again from a folder of measurements.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from oomcast.errors import OomcastError, UnknownName

from ..cases import Case, CaseSet
from .form import case_from_json, case_to_json

__all__ = ["FILE", "MOST_ROWS", "SCHEMA", "Figure", "Source", "figures_to_json", "read_figures", "sources"]

FILE = "measured.json"
SCHEMA = 1
MOST_ROWS = 200


@dataclass(frozen=True)
class Source:
    """Where a figure was published."""

    repository: str
    commit: str
    file: str

    def __post_init__(self) -> None:
        if not (self.repository and self.commit and self.file):
            raise ValueError("a source names its repository, commit and file")


class Figure(NamedTuple):
    case: Case
    source: Source
    where: str
    """What finds the row in its source, where the job does not."""


def read_figures(names: Iterable[str] = ()) -> tuple[CaseSet, ...]:
    """The data sets of the table, or those of these names."""
    rows = _content()["rows"]
    found: dict[str, list[Case]] = {}
    try:
        for row in rows:
            case = case_from_json(row)
            found.setdefault(case.data, []).append(case)
    except (KeyError, TypeError, ValueError) as problem:
        raise _broken(problem) from problem
    wanted = list(names)
    for name in wanted:
        if name not in found:
            raise UnknownName("data set", name, found, "These come with oomcast; others need a folder of measurements.")
    return tuple(CaseSet(name, tuple(found[name])) for name in wanted or found)


def sources() -> Mapping[str, Source]:
    """By the name that rows use."""
    try:
        return {name: Source(**told) for name, told in _content()["sources"].items()}
    except (KeyError, TypeError, ValueError) as problem:
        raise _broken(problem) from problem


def figures_to_json(figures: Iterable[Figure]) -> dict[str, Any]:
    """The table's content."""
    names: dict[Source, str] = {}
    rows = []
    for case, source, where in figures:
        name = names.setdefault(source, f"{source.repository.rpartition('/')[2]} {len(names) + 1}")
        rows.append({"source": name, "where": where, **case_to_json(case)})
    if len(rows) > MOST_ROWS:
        raise ValueError(f"{len(rows)} rows: at most {MOST_ROWS} figures are quoted")
    told = {name: {"repository": one.repository, "commit": one.commit, "file": one.file} for one, name in names.items()}
    return {"schema": SCHEMA, "sources": told, "rows": rows}


def _content() -> Mapping[str, Any]:
    try:
        content: Mapping[str, Any] = json.loads(resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {SCHEMA} is expected")
        return content
    except (OSError, ValueError, KeyError) as problem:
        raise _broken(problem) from problem


def _broken(problem: Exception) -> OomcastError:
    return OomcastError(f"the data file lab/accuracy/figures/{FILE} is broken: {problem}.")
