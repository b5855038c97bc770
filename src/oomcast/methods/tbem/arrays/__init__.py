"""Orthogonal arrays OA(n, f, l, s): few cases in which every pair (or triple …) of levels meets equally often.

Why they are here: testing every combination of factors takes too many runs; an orthogonal array of strength 2 lets each
factor's effect be told apart from every other's with the fewest. Arrays of any numbers of levels are made, also mixed:
from Galois fields and Hadamard matrices (`algebra`), difference schemes and stored tables (`schemes`), by packing
columns into few runs (`packing`), or of higher strength (`strong`). Every array that leaves has been checked (`array`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oomcast.errors import BadInput

from .algebra import Ints
from .array import OrthogonalArray, strength_of
from .packing import fewest_runs, pack
from .strong import strong_array

__all__ = ["MAX_RUNS", "OrthogonalArray", "find_array", "strength_of"]

MAX_RUNS = 50_000
"""No campaign runs more cases than this; a request that needs more is refused."""


def find_array(levels: Sequence[int], strength: int = 2) -> OrthogonalArray:
    """The smallest array known here with one column for each number of levels; its strength has been checked.

    With fewer factors than `strength` it is every combination, of the strength that so many factors can have.
    """
    if not levels:
        raise BadInput("an orthogonal array needs at least one factor.")
    if any(level < 1 for level in levels):
        raise BadInput(f"every factor needs at least one level; the levels given are {list(levels)}.")
    if strength < 2:
        raise BadInput(f"the strength of an orthogonal array is 2 or more, not {strength}.")
    # Factors of one level are constant; the others go in falling order, the order that packing wants.
    order = sorted((i for i, level in enumerate(levels) if level > 1), key=lambda i: -levels[i])
    wanted = tuple(levels[i] for i in order)
    columns = _pairwise(wanted) if strength == 2 or len(wanted) <= 2 else strong_array(wanted, strength, MAX_RUNS)
    if columns is None:
        raise BadInput(
            f"no orthogonal array of strength {strength} with levels {_written(levels)} has at most {MAX_RUNS} runs; "
            "take fewer factors, fewer levels or levels that are powers of one prime."
        )
    array = np.zeros((len(columns), len(levels)), dtype=np.int64)
    array[:, order] = columns
    rows = array[np.lexsort(array.T[::-1])]
    return OrthogonalArray(tuple(levels), min(strength, len(levels)), tuple(map(tuple, rows.tolist())))


def _pairwise(levels: tuple[int, ...]) -> Ints | None:
    if not levels:
        return np.zeros((1, 0), dtype=np.int64)
    step, least = fewest_runs(levels)
    for runs in range(least, MAX_RUNS + 1, step):
        if recipe := pack(runs, levels):
            return recipe()
    return None


def _written(levels: Sequence[int]) -> str:
    """`4^3 2^7`."""
    return " ".join(f"{level}^{levels.count(level)}" for level in sorted(set(levels), reverse=True))
