"""Orthogonal arrays OA(n, f, l, s) of any levels, also mixed; every array that leaves has been checked."""

from ._array import OrthogonalArray, strength_of
from ._find import MAX_RUNS, find_array

__all__ = ["MAX_RUNS", "OrthogonalArray", "find_array", "strength_of"]
