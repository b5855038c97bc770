"""Screening: how much each factor alone moves a response, from the cases of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ._factors import Case, Factor, Value

__all__ = ["Effect", "main_effects"]


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
