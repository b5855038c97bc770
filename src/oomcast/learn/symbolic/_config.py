"""The settings of a search, as a file in TOML. The defaults are those that were published."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

__all__ = ["ENGINES", "PRIMITIVES", "SearchConfig"]

ENGINES = ("operon", "deap")
PRIMITIVES = ("add", "multiply", "square", "cube", "subtract", "maximum")
_PUBLISHED = ("add", "multiply", "square", "cube")
_TABLE = "search"


@dataclass(frozen=True)
class SearchConfig:
    """Everything that decides a search beside the samples.

    The last group concerns the published search alone, which is the engine `deap`.
    """

    engine: str = "operon"
    primitives: tuple[str, ...] = _PUBLISHED
    metric: str = "mape"
    population: int = 300
    generations: int = 150
    max_size: int = 60
    seed: int = 0

    mutation: float = 0.5
    crossover: float = 1.0
    tournament: int = 3
    parsimony: float = 1.1
    constant_iterations: int = 10

    def __post_init__(self) -> None:
        _check(self.engine in ENGINES, f"the engine must be one of {', '.join(ENGINES)}")
        _check(self.metric == "mape", "the only metric is mape")
        unknown = [name for name in self.primitives if name not in PRIMITIVES]
        _check(not unknown, f"unknown primitive {unknown[0] if unknown else ''!r}: there are {', '.join(PRIMITIVES)}")
        _check({"add", "multiply"} <= set(self.primitives), "the primitives must hold add and multiply")
        _check(
            self.engine != "deap" or "subtract" not in self.primitives,
            "the engine deap has no subtract: its constants may be negative anyway",
        )
        _check(len(set(self.primitives)) == len(self.primitives), "a primitive is named twice")
        for name, least in (("population", 4), ("generations", 1), ("max_size", 3), ("tournament", 1), ("seed", 0)):
            _check(_is_whole(getattr(self, name), least), f"{name} must be a whole number of at least {least}")
        _check(_is_whole(self.constant_iterations, 0), "constant_iterations must be a whole number, not negative")
        for name in ("mutation", "crossover"):
            _check(_is_within(getattr(self, name), 0, 1), f"{name} is a probability, from 0 to 1")
        _check(_is_within(self.parsimony, 1, 2), "parsimony must be from 1 to 2")

    @classmethod
    def published(cls, seed: int = 0) -> SearchConfig:
        """The published search."""
        return cls(engine="deap", seed=seed)

    @classmethod
    def read(cls, path: str | Path) -> SearchConfig:
        """From a file; settings that it does not name have their defaults."""
        toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
        try:
            plain: dict[str, Any] = toml.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from None
        except (UnicodeDecodeError, toml.TOMLDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from None
        given = plain.get(_TABLE)
        if not isinstance(given, dict):
            raise ValueError(f"{path} has no table [{_TABLE}]")
        known = {field.name for field in fields(cls)}
        if unknown := sorted((plain.keys() - {_TABLE}) | (given.keys() - known)):
            raise ValueError(f"{path}: unknown setting {unknown[0]!r}; [{_TABLE}] may hold {', '.join(sorted(known))}")
        if "primitives" in given:
            if not isinstance(given["primitives"], list):
                raise ValueError(f"{path}: primitives must be a list")
            given = {**given, "primitives": tuple(map(str, given["primitives"]))}
        try:
            return cls(**given)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """As a file that `read` understands."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in asdict(self).items()]
        Path(path).write_text("\n".join([f"[{_TABLE}]", *lines, ""]), encoding="utf-8")


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
