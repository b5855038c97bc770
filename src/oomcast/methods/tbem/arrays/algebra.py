"""Finite fields as two small tables, and Hadamard matrices: what orthogonal arrays are made of.

The fields wanted here have at most a few hundred elements and are used once per array, so tables serve: a library for
finite fields (galois) brings a compiler of 200 MB and 2 s of import for the same numbers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Field", "Ints", "field", "hadamard", "has_hadamard", "prime_power", "prime_powers"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Field:
    """GF(q), q = p^m: an element is the number whose digits in base p are the coefficients of its polynomial."""

    order: int
    prime: int
    add: Ints
    multiply: Ints

    @property
    def negative(self) -> Ints:
        """-x for each x."""
        negative: Ints = np.argmin(self.add, axis=1)
        return negative

    @property
    def inverse(self) -> Ints:
        """1/x for each x; 0 stands in for 1/0."""
        return np.where(np.arange(self.order) == 0, 0, np.argmax(self.multiply == 1, axis=1))


def prime_powers(number: int) -> dict[int, int]:
    """The primes of a number with their exponents: 12 is {2: 2, 3: 1}."""
    exponents: dict[int, int] = {}
    prime = 2
    while number > 1:
        if prime * prime > number:
            prime = number
        while number % prime == 0:
            exponents[prime] = exponents.get(prime, 0) + 1
            number //= prime
        prime += 1
    return exponents


def prime_power(number: int) -> tuple[int, int] | None:
    """(p, m) where the number is p^m with m at least 1, None where it is not."""
    factors = prime_powers(number)
    return next(iter(factors.items())) if len(factors) == 1 else None


@cache
def field(order: int) -> Field:
    """The finite field GF(order), which there is for prime powers."""
    power = prime_power(order)
    if power is None:
        raise ValueError(f"there is no field of {order} elements")
    prime, degree = power
    digits = _digits(np.arange(order), prime, degree)
    weights = prime ** np.arange(degree)
    add = ((digits[:, None, :] + digits[None, :, :]) % prime) @ weights
    for low in itertools.product(range(prime), repeat=degree):
        multiply = _products(digits, np.array(low), prime) @ weights
        # A ring without divisors of zero is a field: then the polynomial is irreducible.
        if not (multiply[1:, 1:] == 0).any():
            return Field(order, prime, add, multiply)
    raise AssertionError("an irreducible polynomial exists for every degree")


def _digits(numbers: Ints, base: int, length: int) -> Ints:
    return (numbers[:, None] // base ** np.arange(length)) % base


def _products(digits: Ints, low: Ints, prime: int) -> Ints:
    """All products modulo x^m + low, as digits."""
    count, degree = digits.shape
    product = np.zeros((count, count, 2 * degree - 1), dtype=np.int64)
    for i, j in itertools.product(range(degree), repeat=2):
        product[:, :, i + j] += digits[:, None, i] * digits[None, :, j]
    product %= prime
    for power in range(2 * degree - 2, degree - 1, -1):
        product[:, :, power - degree : power] -= product[:, :, power, None] * low
        product %= prime
    return product[:, :, :degree]


# Hadamard matrices come from Paley's two constructions and from doubling; their signs are written as 0 and 1.


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
