"""Orthogonal arrays: their strength, proven here by counting, and their size against published ones."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.errors import BadInput
from oomcast.methods.tbem.arrays import OrthogonalArray, find_array, strength_of

# The fewest runs known for f factors of l levels, strength 2, as (runs, most factors): Kuhfeld's catalogue of
# orthogonal arrays (SAS TS-723, complete up to 143 runs, as the R package DoE.base lists it). Beyond it: 9 levels, 162
# runs, Addelman and Kempthorne 1961; 7 levels, 196 runs, from a generalized Hadamard matrix of order 28 (Dawson 1985).
# No array of more than 11 factors of 6 levels is in the catalogue: the next possible number of runs stands for it.
PUBLISHED = {
    2: ((4, 3), (8, 7), (12, 11), (16, 15), (20, 19)),
    3: ((9, 4), (18, 7), (27, 13), (54, 25)),
    4: ((16, 5), (32, 9), (48, 13), (64, 21)),
    5: ((25, 6), (50, 11), (100, 21)),
    6: ((36, 3), (72, 7), (108, 11), (180, 16)),
    7: ((49, 8), (98, 15), (196, 16)),
    8: ((64, 9), (128, 17)),
    9: ((81, 10), (162, 19)),
}
LARGER_THAN_PUBLISHED = {(6, f) for f in range(12, 17)}

# Strength 3, (runs, most factors). Two levels: folded Hadamard matrices (Seiden and Zemach 1966). Others: index 1 (Bush
# 1952); 54 runs for 3^5 (Hedayat, Sloane and Stufken, Orthogonal Arrays, 1999); then the largest caps: 10 points in
# PG(3, 3), 20 in PG(4, 3), ovoids of q^2 + 1 points in PG(3, q).
PUBLISHED_STRENGTH_3 = {
    2: ((8, 4), (16, 8), (24, 12), (32, 16)),
    3: ((27, 4), (54, 5), (81, 10), (243, 20)),
    4: ((64, 6), (256, 17)),
    5: ((125, 6), (625, 26)),
    7: ((343, 8), (2401, 50)),
    8: ((512, 10), (4096, 65)),
    9: ((729, 10), (6561, 82)),
}

# Mixed levels of the same catalogue, with its runs.
MIXED = {
    "2^4 4^1": 8,
    "2^2 6^1": 12,
    "2^4 3^1": 12,
    "2^12 4^1": 16,
    "2^3 4^4": 16,
    "2^8 8^1": 16,
    "2^1 3^7": 18,
    "3^6 6^1": 18,
    "2^8 5^1": 20,
    "2^11 4^1 6^1": 24,
    "2^4 4^8": 32,
    "2^11 3^12": 36,
    "2^4 3^13": 36,
    "3^12 4^1": 36,
    "6^3": 36,
    "3^10 5^1": 45,
    "2^4 3^1 4^12": 48,
    "2^1 5^11": 50,
    "3^15 6^1": 54,
    "2^1 9^1": 18,
    "2^5 6^7": 72,
    "2^1 7^15": 98,
    "2^4 5^13": 100,
    "4^1 5^20": 100,
}

TWICE_THE_CATALOGUE = {"2^11 4^1 6^1", "2^5 6^7"}


def levels_of(text: str) -> tuple[int, ...]:
    return tuple(
        int(level) for level, _, many in (part.partition("^") for part in text.split()) for _ in range(int(many))
    )


def counted_strength(array: OrthogonalArray, strength: int) -> bool:
    """The definition, written out: every choice of columns holds every combination equally often."""
    for columns in itertools.combinations(range(len(array.levels)), strength):
        seen = Counter(tuple(row[column] for column in columns) for row in array.rows)
        cells = math.prod(array.levels[column] for column in columns)
        if len(seen) != cells or len(set(seen.values())) != 1:
            return False
    return True


def published(table: Sequence[tuple[int, int]], factors: int) -> int:
    return next(runs for runs, most in table if factors <= most)


@pytest.mark.parametrize("level", PUBLISHED)
@pytest.mark.parametrize("factors", range(2, 17))
def test_arrays_of_one_level_have_strength_2_and_few_runs(level: int, factors: int) -> None:
    array = find_array((level,) * factors)
    assert array.levels == (level,) * factors
    assert counted_strength(array, 2)
    known = published(PUBLISHED[level], factors)
    if (level, factors) in LARGER_THAN_PUBLISHED:
        assert known < array.runs <= 2 * known
    else:
        assert array.runs == known


@pytest.mark.parametrize(
    ("level", "factors"),
    [(2, f) for f in range(3, 17)]
    + [(3, f) for f in range(3, 17)]
    + [(4, f) for f in (3, 5, 6, 7, 12)]
    + [(5, f) for f in (4, 6, 8)]
    + [(7, 8), (8, 10), (9, 10)],
)
def test_arrays_of_strength_3(level: int, factors: int) -> None:
    array = find_array((level,) * factors, strength=3)
    assert array.strength == 3
    assert counted_strength(array, 3)
    assert array.runs <= 2 * published(PUBLISHED_STRENGTH_3[level], factors)


@pytest.mark.parametrize(("levels", "strength"), [((2,) * 8, 4), ((3,) * 6, 4), ((2,) * 7, 5), ((5,) * 6, 4)])
def test_higher_strengths(levels: tuple[int, ...], strength: int) -> None:
    array = find_array(levels, strength)
    assert counted_strength(array, strength)
    assert array.runs < math.prod(levels)


@pytest.mark.parametrize("text", MIXED)
def test_mixed_levels_of_the_catalogue(text: str) -> None:
    array = find_array(levels_of(text))
    assert array.levels == levels_of(text)
    assert counted_strength(array, 2)
    assert array.runs == MIXED[text] * (2 if text in TWICE_THE_CATALOGUE else 1)


@pytest.mark.parametrize("text", ["2^2 3^2", "2^3 4^2", "3^1 4^3", "2^4 6^1", "2^3 3^2 5^1"])
def test_mixed_levels_of_strength_3(text: str) -> None:
    array = find_array(levels_of(text), 3)
    assert counted_strength(array, 3)
    assert array.runs <= math.prod(array.levels)


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=9).filter(lambda levels: math.prod(levels) <= 6000),
    st.integers(2, 4),
)
def test_any_levels_have_an_array_of_the_strength_asked_for(levels: list[int], strength: int) -> None:
    array = find_array(levels, strength)
    assert array.levels == tuple(levels)
    assert array.strength == min(strength, len(levels))
    assert counted_strength(array, array.strength)
    assert 1 + sum(level - 1 for level in levels) <= array.runs <= math.prod(levels) or array.strength < 2


def test_the_order_of_the_levels_is_kept() -> None:
    array = find_array((2, 4, 3, 1, 4))
    for column, level in enumerate(array.levels):
        assert {row[column] for row in array.rows} == set(range(level))


def test_the_same_levels_give_the_same_array() -> None:
    assert find_array((6, 6, 3, 2)) == find_array((6, 6, 3, 2))


def test_one_changed_cell_is_found() -> None:
    good = find_array((4, 4, 4))
    rows = [list(row) for row in good.rows]
    rows[5][1] = (rows[5][1] + 1) % 4
    assert strength_of(rows, good.levels) == 0
    with pytest.raises(ValueError, match="said to have strength 2"):
        OrthogonalArray(good.levels, 2, tuple(map(tuple, rows)))


def test_strength_is_the_largest_that_holds() -> None:
    parity = [(a, b, a ^ b) for a in (0, 1) for b in (0, 1)]
    assert strength_of(parity, (2, 2, 2)) == 2
    assert strength_of(list(itertools.product((0, 1), repeat=3)), (2, 2, 2)) == 3
    assert strength_of(parity, (2, 2, 2), limit=1) == 1
    assert strength_of([(0, 0), (1, 0)], (2, 2)) == 0
    assert strength_of([(0, 0), (1, 1)], (2, 2)) == 1
    assert strength_of([(0,), (2,)], (2,)) == 0


@pytest.mark.parametrize(
    ("levels", "strength", "words"),
    [
        ((), 2, "at least one factor"),
        ((2, 0), 2, "at least one level"),
        ((2, 2), 1, "2 or more"),
        ((97, 89, 83), 2, "take fewer factors"),
        ((9,) * 12, 5, "take fewer factors"),
    ],
)
def test_what_cannot_be_is_said(levels: tuple[int, ...], strength: int, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        find_array(levels, strength)
