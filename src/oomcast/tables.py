"""Tables of a TOML file that a person writes: every value is checked as it is read, and what is wrong is one sentence.

A sentence names the file and the key, as in `vgg.toml: plan.runs: must be a whole number from 0 to 50000, not -1.` The
readers return the default for a key that is absent.

>>> table = Table("vgg.toml", "", read_toml(Path("vgg.toml")))
>>> table.only("template", "steps")
>>> table.whole("steps", 3)
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .errors import BadInput, UnknownName, UnreadableFile
from .spec import Option
from .units import parse_bytes

__all__ = ["Table", "read_toml"]

Default = TypeVar("Default")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises UnreadableFile with the reason."""
    # The standard library has it from 3.11 on; the same code under another name serves 3.10.
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        values: dict[str, Any] = toml.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is not a TOML file: {error}.") from None
    return values


class Table:
    """One table of a file. `where` says which: `plan`, whose keys are `plan.runs`, or in words, like `job 'a'`."""

    def __init__(self, file: str, where: str, values: Mapping[str, Any]) -> None:
        self.file, self.where, self.values = file, where, values

    def error(self, text: str) -> UnreadableFile:
        """For something that is wrong with the table as a whole: `jobs.toml: job 'a' has no name.`"""
        return UnreadableFile(f"{self.file}: {self.where} {text}" if self.where else f"{self.file}: {text}")

    def error_at(self, key: str, text: str) -> UnreadableFile:
        """For something that is wrong with one value: `vgg.toml: plan.runs: is missing; add it.`"""
        return UnreadableFile(f"{self.file}: {self.path(key)}: {text}")

    def path(self, key: str) -> str:
        """The key with its table's: `plan.runs`, or `job 'a': count`."""
        if not self.where:
            return key
        return f"{self.where}.{key}" if self.where.replace(".", "").isidentifier() else f"{self.where}: {key}"

    def only(self, *known: str) -> None:
        """Refuse every other key: a mistyped one must not be ignored."""
        for key in self.values:
            if key not in known:
                hint = f"Known here: {', '.join(known)}."
                raise self.error_at(key, str(UnknownName("key", key, known, hint)))

    def require(self, *keys: str) -> None:
        for key in keys:
            if key not in self.values:
                raise self.error_at(key, "is missing; add it.")

    def text(self, key: str, default: Default) -> str | Default:
        if key not in self.values:
            return default
        value = self.values[key]
        if not isinstance(value, str) or not value.strip():
            raise self.error_at(key, f"must be a text, not {value!r}.")
        return value

    def one_of(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.text(key, default)
        if value not in choices:
            hint = f"It is one of {', '.join(choices)}."
            raise self.error_at(key, str(UnknownName("value", value, choices, hint)))
        return value

    def whole(self, key: str, default: Default, *, least: int = 1, most: int | None = None) -> int | Default:
        if key not in self.values:
            return default
        value = self.values[key]
        if (
            isinstance(value, bool)
            or not isinstance(value, int)
            or value < least
            or (most is not None and value > most)
        ):
            limits = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise self.error_at(key, f"must be a whole number {limits}, not {value!r}.")
        return value

    def number(self, key: str, default: Default) -> float | Default:
        """A finite number that is not negative."""
        if key not in self.values:
            return default
        value = self.values[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error_at(key, f"must be a number, not {value!r}.")
        if not 0 <= value <= sys.float_info.max:
            raise self.error_at(key, f"must not be negative or endless, as {value!r} is.")
        return float(value)

    def size(self, key: str) -> int | None:
        """Bytes: a whole number, or a text such as `8GiB`."""
        value = self.values.get(key)
        if isinstance(value, str):
            try:
                value = parse_bytes(value)
            except BadInput as error:
                raise self.error_at(key, str(error)) from None
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise self.error_at(key, f"must be a size such as '8GiB' or a number of bytes, not {value!r}.")
        return value

    def option(self, declared: Option) -> Any:
        """The value of an option that a description declares (see `oomcast.spec.options`); the key must be there."""
        try:
            return declared.kind.read(self.values[declared.name])
        except BadInput as error:
            raise self.error_at(declared.name, str(error)) from None

    def table(self, key: str) -> Table:
        """A table within this one, empty where it is absent."""
        value = self.values.get(key, {})
        if not isinstance(value, dict):
            raise self.error_at(key, f"must be a table, [{self.path(key)}], not {value!r}.")
        return Table(self.file, self.path(key), value)

    def tables(self, key: str) -> list[Table]:
        """A list of tables within this one, empty where it is absent."""
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.error_at(key, f"must be tables, [[{self.path(key)}]], not {value!r}.")
        return [Table(self.file, self.path(key), entry) for entry in value]
