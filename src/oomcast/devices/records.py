"""Reading the data files of this room, each field checked, so that a broken file says what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ..errors import OomcastError

__all__ = ["Record", "broken", "read_records"]


def broken(file: str, where: str, what: str) -> OomcastError:
    """The error for a data file that was damaged or edited wrongly."""
    return OomcastError(f"the data file oomcast/devices/{file} is broken: {where}: {what}.")


class Record:
    """One JSON object of a data file; every reader raises a clear error if the field is missing or of another kind."""

    def __init__(self, file: str, where: str, fields: object) -> None:
        if not isinstance(fields, Mapping):
            raise broken(file, where, "an object is expected here")
        self.file = file
        self.where = where
        self.fields: Mapping[str, Any] = fields

    def error(self, what: str) -> OomcastError:
        return broken(self.file, self.where, what)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.fields.get(key, default)
        if not isinstance(value, str):
            raise self.error(f"{key!r} must be a text")
        return value

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        value = self.fields.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
            raise self.error(f"{key!r} must be a whole number of at least {minimum}")
        return value

    def number(self, key: str) -> float:
        value = self.fields.get(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or value < 0:
            raise self.error(f"{key!r} must be a number of at least 0")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.fields.get(key, default)
        if not isinstance(value, bool):
            raise self.error(f"{key!r} must be true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.fields.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(f"{key!r} must be a list of texts")
        return tuple(value)

    def record(self, key: str) -> Record:
        return Record(self.file, f"{self.where}, {key}", self.fields.get(key))

    def only(self, *keys: str) -> None:
        """A field that nobody reads is a typing error in the data."""
        unknown = sorted(set(self.fields) - set(keys))
        if unknown:
            raise self.error(f"unknown field {unknown[0]!r}")


def read_records(file: str, schema: int) -> Record:
    """The whole data file as one record, after its version was checked."""
    try:
        content = json.loads(resources.files(__package__).joinpath(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise broken(file, "it cannot be read", str(problem)) from problem
    top = Record(file, "top level", content)
    if top.integer("schema") != schema:
        raise top.error(f"schema {schema} is expected")
    return top
