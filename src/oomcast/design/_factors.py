"""A factor: one thing that a campaign varies, with the levels it takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import BadInput

__all__ = ["Case", "Factor", "Value", "combinations"]

Value: TypeAlias = int | float | str | bool
Case: TypeAlias = Mapping[str, Value]


@dataclass(frozen=True)
class Factor:
    """A named parameter of a template and its levels, in the order given, each once."""

    name: str
    levels: tuple[Value, ...]

    def __post_init__(self) -> None:
        if not self.levels:
            raise BadInput(f"factor {self.name!r} has no levels; give it at least one.")
        # True == 1 in Python, but they are two levels to a person.
        if len({(isinstance(level, bool), level) for level in self.levels}) < len(self.levels):
            raise BadInput(f"factor {self.name!r} has a level twice; write each level once.")

    @property
    def is_numeric(self) -> bool:
        return not any(isinstance(level, str) for level in self.levels)


def combinations(factors: Sequence[Factor]) -> int:
    """How many cases every combination of levels would take."""
    return math.prod(len(factor.levels) for factor in factors)
