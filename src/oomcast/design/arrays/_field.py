"""Finite fields as two small tables.

The fields wanted here have at most a few hundred elements and are used once per array, so tables serve: a library for
finite fields (galois) brings a compiler of 200 MB and 2 s of import for the same numbers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["Field", "Ints", "field", "prime_power", "prime_powers"]

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
    found: dict[int, int] = {}
    prime = 2
    while number > 1:
        if prime * prime > number:
            prime = number
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1
    return found


def prime_power(number: int) -> tuple[int, int] | None:
    """(p, m) where the number is p^m with m at least 1, None where it is not."""
    factors = prime_powers(number)
    return next(iter(factors.items())) if len(factors) == 1 else None


@cache
def field(order: int) -> Field:
    """GF(order)."""
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
