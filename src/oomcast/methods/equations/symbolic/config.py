"""The settings of a search for equations, in Python or as a TOML file.

Sizes, rates and primitives are as published; the engine is Operon, which is far faster than the published one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

from ....errors import UnreadableFile
from ....tables import Table, read_toml

__all__ = ["ENGINES", "METRICS", "PRIMITIVES", "OnGeneration", "SearchConfig", "SearchState"]

ENGINES = ("operon", "deap")
METRICS = ("mape", "mse", "rmse")
PRIMITIVES = ("add", "multiply", "square", "cube", "subtract", "maximum")
_PUBLISHED = ("add", "multiply", "square", "cube")
_TABLE = "search"


@dataclass(frozen=True)
class SearchState:
    """How far the published search is."""

    generation: int
    generations: int
    error: float
    """Of the best equation so far, by the search's own metric on the rows that it learns from."""
    size: int
    """Of that equation: its operations, variables and constants."""


OnGeneration = Callable[[SearchState], bool]
"""Told after each generation of the published search; False ends the search with what it has found."""


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
    patience: int = 0
    """Generations without a better equation after which the search ends; 0 lets it run to its end, as published."""

    def __post_init__(self) -> None:
        _check(self.engine in ENGINES, f"the engine must be one of {', '.join(ENGINES)}")
        _check(self.metric in METRICS, f"the metric must be one of {', '.join(METRICS)}")
        _check(self.engine == "deap" or self.metric == "mape", "the engine operon has the metric mape alone")
        _check(self.engine == "deap" or self.patience == 0, "patience is a setting of the engine deap alone")
        _check(_is_whole(self.patience, 0), "patience must be a whole number, not negative")
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
        """The settings of the search as it was published."""
        return cls(engine="deap", seed=seed)

    @classmethod
    def read(cls, path: str | Path) -> SearchConfig:
        """From the table [search] of a TOML file; settings that it does not name have their defaults."""
        file = Table(str(path), "", read_toml(Path(path)))
        file.only(_TABLE)
        file.require(_TABLE)
        table = file.table(_TABLE)
        table.only(*(field.name for field in fields(cls)))
        settings = dict(table.values)
        if "primitives" in settings:
            if not isinstance(settings["primitives"], list):
                raise table.error_at("primitives", "must be a list of names, such as ['add', 'multiply'].")
            settings["primitives"] = tuple(map(str, settings["primitives"]))
        try:
            return cls(**settings)
        except ValueError as error:
            raise UnreadableFile(f"{path}: {error}.") from None


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_within(value: object, low: float, high: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high
