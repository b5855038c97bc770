"""Samples as learners want them, checked: a table of variables, one positive response for each row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LEAST_ROWS", "checked", "folds", "table"]

Floats: TypeAlias = NDArray[np.float64]

LEAST_ROWS = 8
"""Fewer different rows than this cannot tell one form of equation from another."""


def table(x: ArrayLike, names: Sequence[str]) -> Floats:
    """The variables as rows and columns, a column for each name."""
    try:
        rows = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("the variables must be a table of numbers") from None
    if rows.ndim == 1 and len(names) == 1:
        rows = rows[:, None]
    if rows.ndim != 2:
        raise ValueError("the variables must be a table: rows and columns")
    if rows.shape[1] != len(names):
        raise ValueError(
            f"{rows.shape[1]} variables were given where {len(names)} are needed: {', '.join(names) or 'none'}"
        )
    if not np.isfinite(rows).all():
        raise ValueError(f"a value of {names[int(np.argmin(np.isfinite(rows).all(axis=0)))]} is not a finite number")
    return rows


def checked(x: ArrayLike, y: ArrayLike, names: Sequence[str] | None) -> tuple[Floats, Floats, tuple[str, ...]]:
    """Variables, response and names, if an equation can be learned from them; else a ValueError says what is needed."""
    try:
        shape = np.shape(np.asarray(x, dtype=np.float64))
        response = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("variables and response must be numbers") from None
    width = shape[1] if len(shape) == 2 else 1
    known = tuple(names) if names is not None else tuple(f"x{place}" for place in range(width))
    if len(known) != width:
        raise ValueError(f"{len(known)} names for {width} variables")
    if not known or not all(isinstance(name, str) and name for name in known) or len(set(known)) != len(known):
        raise ValueError("each variable needs a name of its own")
    rows = table(x, known)
    if response.shape != (len(rows),):
        raise ValueError(f"{len(rows)} rows of variables for a response of shape {response.shape}")
    if not np.isfinite(response).all():
        raise ValueError("a response is not a finite number")
    if (response <= 0).any():
        raise ValueError(f"every response must be greater than 0; one is {response.min():g}")
    if len(rows) and (constant := (rows == rows[0]).all(axis=0)).any():
        name = known[int(np.argmax(constant))]
        raise ValueError(
            f"{name} has the same value in every sample, so its effect cannot be learned: vary it or leave it out"
        )
    if (different := len(np.unique(rows, axis=0))) < (least := max(LEAST_ROWS, 2 * width + 2)):
        raise ValueError(
            f"{different} different samples are too few for {width} variables: at least {least} are needed"
        )
    return rows, response, known


def folds(x: Floats, seed: int, most: int = 10) -> list[NDArray[np.bool_]]:
    """Which rows to keep out together, in turn; equal rows always are."""
    _, inverse = np.unique(x, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    different = int(inverse.max()) + 1
    parts = (np.random.default_rng(seed).permutation(different) % min(most, different))[inverse]
    return [parts == part for part in range(min(most, different))]
