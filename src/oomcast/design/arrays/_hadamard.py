"""Hadamard matrices from Paley's two constructions and doubling, as signs 0 and 1."""

from __future__ import annotations

from functools import cache

import numpy as np

from ._field import Ints, field, prime_power

__all__ = ["hadamard", "has_hadamard"]


@cache
def has_hadamard(order: int) -> bool:
    """Whether a Hadamard matrix of this order can be made here: all multiples of 4 up to 88, most after."""
    if order in (1, 2):
        return True
    return order % 4 == 0 and (_paley_one(order) or _paley_two(order) or has_hadamard(order // 2))


@cache
def hadamard(order: int) -> Ints:
    """A matrix of 0 and 1 whose columns differ pairwise in exactly half of the rows; its first column is 0."""
    if order == 1:
        signs = np.ones((1, 1), dtype=np.int64)
    elif _paley_one(order):
        signs = np.eye(order, dtype=np.int64) + _bordered(order - 1)
    elif _paley_two(order):
        conference = _bordered(order // 2 - 1)
        eye = np.eye(order // 2, dtype=np.int64)
        signs = np.kron(conference, [[1, 1], [1, -1]]) + np.kron(eye, [[1, -1], [-1, -1]])
    else:
        half = 1 - 2 * hadamard(order // 2)
        signs = np.kron([[1, 1], [1, -1]], half)
    signs = signs * signs[:, :1]
    return (1 - signs) // 2


def _paley_one(order: int) -> bool:
    return order % 4 == 0 and prime_power(order - 1) is not None


def _paley_two(order: int) -> bool:
    return order % 4 == 0 and order // 2 % 4 == 2 and prime_power(order // 2 - 1) is not None


def _bordered(order: int) -> Ints:
    """Paley's conference matrix: quadratic characters of differences, with a border of ones."""
    numbers = field(order)
    squares = set(numbers.multiply.diagonal()[1:].tolist())
    character = np.array([0 if x == 0 else 1 if x in squares else -1 for x in range(order)])
    matrix = np.ones((order + 1, order + 1), dtype=np.int64)
    matrix[0, 0] = 0
    matrix[1:, 1:] = character[numbers.add[:, numbers.negative]]
    if order % 4 == 3:
        matrix[1:, 0] = -1
    return matrix
