"""How right oomcast was on measured runs: what `accuracy.json` records, which the laboratory writes and which ships."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from importlib import resources
from typing import Any

from ..errors import OomcastError

__all__ = ["FILE", "SCHEMA", "Calls", "RecordedAccuracy", "accuracy_to_json", "read_accuracy", "recorded_accuracy"]

FILE = "accuracy.json"
SCHEMA = 1


@dataclass(frozen=True)
class Calls:
    """How often it was said right whether a run would fit."""

    right: int
    of: int


@dataclass(frozen=True)
class RecordedAccuracy:
    """Estimates of one set of measured runs. Errors are shares of the measured bytes; None: not recorded."""

    data: str
    """The laboratory's name of the set."""
    what: str
    """What ran, in words."""
    gpu: str
    """By the names of `oomcast devices`."""
    runs: int | None
    median_error: float | None
    """Median of |estimate − measured| / measured; None where only fit or out of memory is known."""
    p90_error: float | None
    """Nine of ten runs are at most so far off."""
    exceeded: float | None
    """Share of the runs that held more than `will_not_exceed`."""
    fits: Calls | None
    """Of the runs that ended well, those that were said to fit."""
    ooms: Calls | None
    """Of the runs that ran out of memory, those that were said to."""
    kept_aside: bool
    """Whether nobody who made the rules saw these runs before."""
    version: str
    """Of oomcast."""
    date: str
    source: str
    """Where the figures were written down."""


def recorded_accuracy() -> tuple[RecordedAccuracy, ...]:
    """What ships with this version."""
    return read_accuracy(resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8"))


def read_accuracy(text: str) -> tuple[RecordedAccuracy, ...]:
    """From the text of such a file; raises OomcastError for one that is broken."""
    try:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {SCHEMA} is expected, not {content['schema']}")
        return tuple(_from_json(row) for row in content["sets"])
    except (ValueError, KeyError, TypeError) as problem:
        raise OomcastError(f"the table of recorded accuracy ({FILE}) is broken: {problem}.") from problem


def accuracy_to_json(recorded: tuple[RecordedAccuracy, ...]) -> dict[str, Any]:
    return {"schema": SCHEMA, "sets": [asdict(judged) for judged in recorded]}


def _from_json(row: dict[str, Any]) -> RecordedAccuracy:
    calls = {name: None if row[name] is None else Calls(**row[name]) for name in ("fits", "ooms")}
    unknown = set(row) - {field.name for field in fields(RecordedAccuracy)}
    if unknown:
        raise ValueError(f"{sorted(unknown)[0]} is no field of it")
    return RecordedAccuracy(**{**row, **calls})
