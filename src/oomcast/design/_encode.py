"""Cases of factors as numbers, for a learner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ._factors import Case, Factor

__all__ = ["encode"]


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
