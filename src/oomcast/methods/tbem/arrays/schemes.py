"""Difference schemes D(r, c, g): r rows, c columns over a group of order g, any two columns differing evenly.

One column of g levels developed through a scheme gives an orthogonal array of r * g runs with c columns of g levels
and one of r levels (Bose and Bush 1952): almost every array of strength 2 here grows from that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from .algebra import Ints, field, hadamard, has_hadamard, prime_power, prime_powers

__all__ = ["Scheme", "divisors", "scheme", "six_level_shifts", "stored_array", "stored_forms", "stored_scheme"]

# What no formula here gives comes from tables.json: difference schemes, quadratic forms that make some, arrays, shifts.
#
# They were found by search (backtracking over columns or forms; annealing for the shifts of six-level arrays). Nothing
# rests on that: every array made from them is checked like any other.


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


_LARGEST_TABLE = 512


@dataclass(frozen=True)
class Scheme:
    """How many columns a scheme has, and how to make its matrix and its group's addition when they are wanted."""

    columns: int
    matrix: Callable[[], Ints]
    add: Callable[[], Ints]


@cache
def scheme(rows: int, group: int) -> Scheme | None:
    """The widest scheme known here, None if there is none."""
    if group < 2 or rows % group:
        return None
    return max(_known(rows, group), key=lambda known: known.columns, default=None)


def divisors(number: int) -> list[int]:
    """All divisors, ascending."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


def _known(rows: int, group: int) -> Iterator[Scheme]:
    if prime_power(group):
        yield from _over_field(rows, group)
    elif (stored := stored_scheme(rows, group)) is not None:
        yield Scheme(stored.shape[1], lambda: stored, lambda: _cyclic(group))
    yield from _crossed(rows, group)
    for prime in prime_powers(rows // group):
        if smaller := scheme(rows // prime, group):
            yield _repeated(smaller, prime)


def _over_field(rows: int, order: int) -> Iterator[Scheme]:
    """Over the additive group of GF(order)."""
    power, target = prime_power(rows), prime_power(order)
    assert target is not None

    def add() -> Ints:
        return field(order).add

    if power and power[0] == target[0] and rows <= _LARGEST_TABLE:
        # The multiplication table of the larger field; low digits are a linear map onto the smaller one.
        yield Scheme(rows, lambda: field(rows).multiply % order, add)
    if order == 2 and has_hadamard(rows):
        yield Scheme(rows, lambda: hadamard(rows), add)
    if rows == 2 * order and order % 2:
        yield Scheme(rows, lambda: _twice(order), add)
    if rows == 4 * order and (forms := stored_forms(order)) is not None:
        yield Scheme(rows, lambda: _from_forms(order, forms), add)
    if (stored := stored_scheme(rows, order)) is not None:
        yield Scheme(stored.shape[1], lambda: stored, add)
    for left in divisors(rows // order)[1:]:
        first, second = scheme(left, order), scheme(rows // left, order)
        if first and second:
            yield _kronecker(first, second, add)


def _twice(order: int) -> Ints:
    """D(2q, 2q, q) for odd q, from two by two quadratic forms."""
    numbers = field(order)
    x = np.arange(order)
    k = next(int(candidate) for candidate in x[1:] if candidate not in numbers.multiply[x, x])
    quarter = numbers.inverse[_times(numbers.add, 4)]
    c_10 = int(numbers.multiply[quarter, numbers.add[numbers.inverse[k], numbers.negative[1]]])
    c_11 = int(numbers.multiply[quarter, numbers.add[1, numbers.negative[k]]])
    return _from_forms(order, [[(1, 1, 0), (0, 1, 0)], [(k, 1, c_10), (0, k, c_11)]])


def _from_forms(order: int, forms: Sequence[Sequence[tuple[int, ...]]]) -> Ints:
    """The entry in row (t, x), column (u, y) is a x^2 + b x y + c y^2 with a, b, c by (t, u).

    Columns of one u differ by a multiple of x plus a constant: evenly. Columns of two u differ, after completing the
    square, by a number times a square plus a rest. The forms are such that the blocks t come in pairs of equal rests,
    one number a square and the other not: together they take every value equally often.
    """
    numbers = field(order)
    x = np.arange(order)
    squares = numbers.multiply[x, x]

    def block(a: int, b: int, c: int) -> Ints:
        in_x = numbers.add[numbers.multiply[a, squares][:, None], numbers.multiply[b, numbers.multiply]]
        whole: Ints = numbers.add[in_x, numbers.multiply[c, squares][None, :]]
        return whole

    return np.block([[block(*form) for form in row] for row in forms])


def _times(add: Ints, count: int) -> int:
    """1 + 1 + ... in the field."""
    total = 0
    for _ in range(count):
        total = int(add[total, 1])
    return total


def _kronecker(first: Scheme, second: Scheme, add: Callable[[], Ints]) -> Scheme:
    def matrix() -> Ints:
        one, two = first.matrix(), second.matrix()
        summed = add()[one[:, None, :, None], two[None, :, None, :]]
        return summed.reshape(len(one) * len(two), -1)

    return Scheme(first.columns * second.columns, matrix, add)


def _crossed(rows: int, group: int) -> Iterator[Scheme]:
    """Over the product of two groups of coprime orders: every row of one scheme with every row of the other."""
    for left in divisors(group)[1:-1]:
        right = group // left
        if set(prime_powers(left)) & set(prime_powers(right)):
            continue
        for count in divisors(rows):
            first, second = scheme(count, left), scheme(rows // count, right)
            if first and second and left < right:
                yield _pair(first, second, right)


def _pair(first: Scheme, second: Scheme, right: int) -> Scheme:
    columns = min(first.columns, second.columns)

    def matrix() -> Ints:
        one, two = first.matrix()[:, :columns], second.matrix()[:, :columns]
        return (one[:, None, :] * right + two[None, :, :]).reshape(-1, columns)

    def add() -> Ints:
        one, two = first.add(), second.add()
        size = len(one) * len(two)
        return (one[:, None, :, None] * right + two[None, :, None, :]).reshape(size, size)

    return Scheme(columns, matrix, add)


def _repeated(smaller: Scheme, times: int) -> Scheme:
    return Scheme(smaller.columns, lambda: np.tile(smaller.matrix(), (times, 1)), smaller.add)


def _cyclic(order: int) -> Ints:
    x = np.arange(order)
    return (x[:, None] + x[None, :]) % order
