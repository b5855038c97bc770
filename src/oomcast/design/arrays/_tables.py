"""What no formula here gives, from tables.json: difference schemes, quadratic forms that make some, arrays, shifts.

They were found by search (backtracking over columns or forms; annealing for the shifts of six-level arrays). Nothing
rests on that: every array made from them is checked like any other.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from ._field import Ints

__all__ = ["six_level_shifts", "stored_array", "stored_forms", "stored_scheme"]


@cache
def _tables() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def stored_scheme(rows: int, group: int) -> Ints | None:
    """A difference scheme over the group of this order: of 3 and 6 elements cyclic, of 4 elementary abelian."""
    for table in _tables()["schemes"]:
        if table["group"] == group and len(table["rows"]) == rows:
            return _matrix(table["rows"])
    return None


def stored_forms(order: int) -> list[list[tuple[int, ...]]] | None:
    """Coefficients of four by four quadratic forms over GF(order), by row block and column block."""
    for table in _tables()["forms"]:
        if table["order"] == order:
            return [[tuple(int(digit) for digit in form) for form in row] for row in table["rows"]]
    return None


def stored_array(runs: int) -> tuple[tuple[int, ...], Ints] | None:
    """An array of that many runs: its levels, in falling order, and its rows."""
    for table in _tables()["arrays"]:
        if len(table["rows"]) == runs:
            return tuple(table["levels"]), _matrix(table["rows"])
    return None


def six_level_shifts(hadamard: int) -> tuple[int, Ints] | None:
    """For a Hadamard matrix of this order: columns to a class, and by how much each row shifts each column."""
    for table in _tables()["shifts"]:
        if table["hadamard"] == hadamard:
            return int(table["class_size"]), _matrix(table["rows"])
    return None


def _matrix(rows: list[str]) -> Ints:
    return np.array([[int(digit) for digit in row] for row in rows], dtype=np.int64)
