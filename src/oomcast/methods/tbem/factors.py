"""A factor: one thing that a campaign varies, with the levels it takes.

Also the cases of a plan as numbers for a learner, and how much each factor alone moves what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...errors import BadInput
from ..measure import Value

__all__ = ["Case", "Effect", "Factor", "Value", "combinations", "encode", "main_effects"]

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


def encode(factors: Sequence[Factor], cases: Sequence[Case]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Cases as a matrix for a learner, with a name for each column.

    Numbers stay as they are, false and true become 0 and 1, a factor of words gets one column of 0 and 1 for each level
    after its first. A factor of one level tells nothing and gets none.
    """
    names: list[str] = []
    columns: list[list[float]] = []
    for factor in factors:
        if len(factor.levels) < 2:
            continue
        values = [case[factor.name] for case in cases]
        if factor.is_numeric:
            names.append(factor.name)
            columns.append([float(value) for value in values])
            continue
        for level in factor.levels[1:]:
            names.append(f"{factor.name}={level}")
            columns.append([float(value == level) for value in values])
    return tuple(names), np.array(columns, dtype=np.float64).reshape(len(names), len(cases)).T


@dataclass(frozen=True)
class Effect:
    """What changing one factor does, all others averaged over."""

    factor: str
    means: tuple[tuple[Value, float], ...]
    """The mean response at each level that was run."""
    range: float
    """From the smallest to the largest of these means."""
    share: float
    """Of the response's whole variance, what differs between the levels of this factor: 0 to 1.

    Over an orthogonal array the shares of all factors and of what is left add up to 1.
    """


def main_effects(factors: Sequence[Factor], cases: Sequence[Case], values: Sequence[float]) -> tuple[Effect, ...]:
    """The effect of every factor, the largest share first. `values` is the response of each case, in order."""
    if len(cases) != len(values):
        raise ValueError(f"{len(values)} values for {len(cases)} cases")
    if not cases:
        raise ValueError("no cases")
    response = np.asarray(values, dtype=np.float64)
    total = float(((response - response.mean()) ** 2).sum())
    effects = []
    for factor in factors:
        groups = [
            (level, response[[i for i, case in enumerate(cases) if _same(case[factor.name], level)]])
            for level in factor.levels
        ]
        means = [(level, float(group.mean())) for level, group in groups if len(group)]
        between = sum(len(group) * float(group.mean() - response.mean()) ** 2 for _, group in groups if len(group))
        spread = max(mean for _, mean in means) - min(mean for _, mean in means)
        effects.append(Effect(factor.name, tuple(means), spread, between / total if total else 0.0))
    return tuple(sorted(effects, key=lambda effect: -effect.share))


def _same(value: Value, level: Value) -> bool:
    return value == level and isinstance(value, bool) == isinstance(level, bool)
