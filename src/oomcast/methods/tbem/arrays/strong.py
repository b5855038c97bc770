"""Arrays of strength 3 and more: linear codes over GF(q), folded Hadamard matrices, crossed for mixed levels.

A set of vectors over GF(q), any s of them independent, gives an array of strength s with one column for each vector.
A column of p^m levels split into all combinations of smaller powers of p keeps the strength, so factors of one prime
share columns; factors of different primes are crossed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import numpy as np

from .algebra import Ints, field, hadamard, has_hadamard, prime_powers

__all__ = ["strong_array"]

Offer: TypeAlias = tuple[int, Callable[[], Ints]]
_SPARE_EXPONENTS = 2
_LARGEST_SEARCH = 5000


def strong_array(levels: tuple[int, ...], strength: int, limit: int) -> Ints | None:
    """The smallest array known here, None if it has more runs than the limit."""
    offers: list[tuple[int, Offer]] = []
    for prime in sorted(prime_powers(math.prod(levels))):
        exponents = [prime_powers(level).get(prime, 0) for level in levels]
        offers.append((prime, min(_one_prime(prime, exponents, strength), key=lambda offer: offer[0])))
    if math.prod(runs for _, (runs, _) in offers) > limit:
        return None
    array = np.zeros((1, len(levels)), dtype=np.int64)
    for prime, (_, make) in offers:
        scale = np.array([prime ** prime_powers(level).get(prime, 0) for level in levels])
        array = (array[:, None, :] * scale + make()[None, :, :]).reshape(-1, len(levels))
    return array


def _one_prime(prime: int, exponents: list[int], strength: int) -> Iterator[Offer]:
    """Ways to make columns of prime**exponent levels each, a constant column where the exponent is 0."""
    levels = [prime**exponent for exponent in exponents]
    yield math.prod(levels), lambda: np.array(list(itertools.product(*map(range, levels))), dtype=np.int64)
    used = sorted((i for i, exponent in enumerate(exponents) if exponent), key=lambda i: -exponents[i])
    if set(levels) <= {1, 2} and strength == 3:
        half = next(order for order in itertools.count(4, 4) if order >= len(used) and has_hadamard(order))
        yield 2 * half, lambda: _placed(np.vstack([hadamard(half), 1 - hadamard(half)]), used, len(levels))
    for size in range(max(exponents), max(exponents) + _SPARE_EXPONENTS + 1):
        bins = _share(size, exponents, used)
        order = prime**size
        length, vectors = _independent(order, len(bins), strength)
        if length:
            yield order**length, partial(_linear, order, vectors, bins, prime, exponents)


def _share(size: int, exponents: list[int], used: list[int]) -> list[list[int]]:
    """First fit of exponents into columns of `size`."""
    bins: list[list[int]] = []
    for factor in used:
        room = (inside for inside in bins if sum(exponents[i] for i in inside) + exponents[factor] <= size)
        if (inside := next(room, None)) is not None:
            inside.append(factor)
        else:
            bins.append([factor])
    return bins


def _independent(order: int, count: int, strength: int) -> tuple[int, list[Ints]]:
    """The least length found, and `count` vectors of that length over GF(order), any `strength` independent."""
    if count <= strength + 1:
        length = min(count, strength)
        vectors = list(np.eye(length, dtype=np.int64))
        return length, (vectors if count <= length else [*vectors, np.ones(length, dtype=np.int64)])
    if count <= order + 1 + (order % 2 == 0 and strength == 3):
        return strength, _moment_curve(order, strength)[:count]
    if strength == 3:
        return _cap(order, count)
    for length in range(strength + 1, count):
        if order**length > _LARGEST_SEARCH:
            break
        if len(vectors := _greedy(order, length, count, strength)) == count:
            return length, vectors
    return 0, []


def _moment_curve(order: int, length: int) -> list[Ints]:
    """(1, x, x^2, ...) for every x, and the point at infinity (Bush 1952); for even q and length 3 the nucleus too."""
    multiply = field(order).multiply
    points = []
    for x in range(order):
        powers = [1]
        while len(powers) < length:
            powers.append(int(multiply[powers[-1], x]))
        points.append(np.array(powers))
    eye = np.eye(length, dtype=np.int64)
    return [*points, eye[-1], *([eye[1]] if order % 2 == 0 and length == 3 else [])]


def _cap(order: int, count: int) -> tuple[int, list[Ints]]:
    """Points no three of which are on a line: the elliptic quadric, then doubled: each with a 0 and with a 1."""
    numbers = field(order)
    values = numbers.multiply
    # x^2 + b x y + c y^2 that is 0 only at the origin.
    x, y = np.divmod(np.arange(order * order), order)
    for b, c in itertools.product(range(order), repeat=2):
        form = numbers.add[numbers.add[values[x, x], values[b, values[x, y]]], values[c, values[y, y]]]
        if np.count_nonzero(form) == len(form) - 1:
            break
    points = [np.array([1, u, v, f]) for u, v, f in zip(x, y, form, strict=True)] + [np.array([0, 0, 0, 1])]
    while len(points) < count:
        points = [np.append(point, last) for point in points for last in (0, 1)]
    return len(points[0]), points[:count]


def _greedy(order: int, length: int, count: int, strength: int) -> list[Ints]:
    """Take each vector that is no combination of fewer than `strength` of those taken (a lexicode's dual)."""
    numbers = field(order)
    space = np.array(list(itertools.product(range(order), repeat=length)), dtype=np.int64)
    weights = order ** np.arange(length - 1, -1, -1)
    reached = [np.zeros(len(space), dtype=bool) for _ in range(strength)]
    for combinations in reached:
        combinations[0] = True
    taken: list[Ints] = []
    while len(taken) < count and not reached[-1].all():
        vector = space[int(np.argmin(reached[-1]))]
        taken.append(vector)
        for fewer, more in reversed(list(itertools.pairwise(reached))):
            for factor in range(1, order):
                shifted = numbers.add[space[fewer], numbers.multiply[factor, vector]]
                more[shifted @ weights] = True
    return taken


def _span(order: int, vectors: list[Ints]) -> Ints:
    """Every message times the vectors: one column for each."""
    numbers = field(order)
    messages = np.array(list(itertools.product(range(order), repeat=len(vectors[0]))), dtype=np.int64)
    columns = []
    for vector in vectors:
        column = np.zeros(len(messages), dtype=np.int64)
        for place, factor in enumerate(vector):
            column = numbers.add[column, numbers.multiply[factor, messages[:, place]]]
        columns.append(column)
    return np.stack(columns, axis=1)


def _linear(order: int, vectors: list[Ints], bins: list[list[int]], prime: int, exponents: list[int]) -> Ints:
    return _split(_span(order, vectors), bins, prime, exponents)


def _split(array: Ints, bins: list[list[int]], prime: int, exponents: list[int]) -> Ints:
    result = np.zeros((len(array), len(exponents)), dtype=np.int64)
    for column, inside in zip(array.T, bins, strict=True):
        rest = column
        for factor in inside:
            rest, result[:, factor] = np.divmod(rest, prime ** exponents[factor])
    return result


def _placed(array: Ints, used: list[int], width: int) -> Ints:
    result = np.zeros((len(array), width), dtype=np.int64)
    result[:, used] = array[:, : len(used)]
    return result
