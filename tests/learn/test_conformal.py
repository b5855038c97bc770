"""Grouped conformal bounds: they hold for groups never seen, and say so where they cannot."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.learn import group_quantile, group_range, leave_group_out

scores_and_groups = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 12)), min_size=1, max_size=60).map(
    lambda pairs: ([score for score, _ in pairs], [group for _, group in pairs])
)


def draw_groups(rng: random.Random, groups: int, rows: int, between: float = 1.0) -> tuple[list[float], list[int]]:
    """Groups whose centres differ as much as `between` says; each with another number of rows."""
    scores, labels = [], []
    for group in range(groups):
        centre = rng.gauss(0, between)
        for _ in range(rng.randint(1, rows)):
            scores.append(rng.gauss(centre, 0.3))
            labels.append(group)
    return scores, labels


def test_with_one_row_in_each_group_it_is_the_usual_conformal_quantile() -> None:
    scores = [float(i) for i in range(1, 20)]
    # ceil(0.95 * 20) = 19: the largest of 19.
    assert group_quantile(scores, range(19), 0.95) == 19.0
    assert group_quantile(scores, range(19), 0.5) == 10.0


def test_too_few_groups_promise_nothing() -> None:
    assert group_quantile([1.0] * 100, [0] * 50 + [1] * 50, 0.95) == math.inf


def test_a_large_group_counts_no_more_than_a_small_one() -> None:
    few = [0.0] * 19 + [9.0]
    assert group_quantile(few, range(20), 0.9) == group_quantile(few + [0.0] * 500, [*range(20), *[0] * 500], 0.9)


def test_two_sides_share_what_may_be_missed() -> None:
    scores = [float(i) for i in range(1, 40)]
    assert group_range(scores, range(39), 0.95) == (1.0, 39.0)


@given(scores_and_groups, st.floats(0.05, 0.9), st.floats(0.0, 0.09))
def test_a_higher_level_never_lowers_the_bound(drawn: tuple[list[float], list[int]], level: float, more: float) -> None:
    assert group_quantile(*drawn, level) <= group_quantile(*drawn, level + more)


@given(scores_and_groups, st.floats(-100, 100))
def test_the_bound_moves_with_the_scores(drawn: tuple[list[float], list[int]], shift: float) -> None:
    scores, groups = drawn
    moved = group_quantile([score + shift for score in scores], groups, 0.5)
    assert moved == pytest.approx(group_quantile(scores, groups, 0.5) + shift, abs=1e-6)


def test_coverage_holds_for_a_new_group_where_the_plain_quantile_fails() -> None:
    rng = random.Random(3)
    grouped = plain = 0
    trials = 600
    for _ in range(trials):
        scores, labels = draw_groups(rng, groups=31, rows=8)
        new = next(i for i, label in enumerate(labels) if label == 30)
        seen, seen_labels = scores[:new], labels[:new]
        grouped += scores[-1] <= group_quantile(seen, seen_labels, 0.9)
        ordered = sorted(seen[: len(seen) // 4])  # as if a few groups were many rows
        plain += scores[-1] <= ordered[math.ceil(0.9 * len(ordered)) - 1]
    # Three standard deviations of a share of 600 draws are 3.7 %.
    assert grouped / trials >= 0.9 - 0.037
    assert plain < grouped


def test_leaving_groups_out_shows_the_coverage_that_is_promised() -> None:
    rng = random.Random(5)
    shares = [leave_group_out(*draw_groups(rng, 60, 10), 0.9).covered_by_group for _ in range(20)]
    assert sum(shares) / len(shares) >= 0.9
    found = leave_group_out(*draw_groups(rng, 60, 10), 0.9)
    assert found.groups == 60
    assert len(found.bounds) == found.rows


def test_a_group_alone_cannot_be_judged() -> None:
    found = leave_group_out([1.0, 2.0], ["a", "a"], 0.9)
    assert found.bounds == (math.inf, math.inf)
    assert found.covered == 1.0


@pytest.mark.parametrize(
    ("scores", "groups", "level"),
    [([], [], 0.9), ([1.0], [1, 2], 0.9), ([1.0], [1], 0.0), ([1.0], [1], 1.0), ([math.nan], [1], 0.5)],
)
def test_nonsense_is_refused(scores: list[float], groups: list[int], level: float) -> None:
    with pytest.raises(ValueError, match=r"."):
        group_quantile(scores, groups, level)
