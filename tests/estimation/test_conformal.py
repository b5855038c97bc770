"""Grouped conformal bounds: they hold for groups never seen, and say so where they cannot."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.estimation import QuantileCurve, group_curve, group_quantile, group_range, leave_group_out

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


# -- the whole curve ---------------------------------------------------------------------------------------------------

LEVELS = tuple(round(0.025 * step, 3) for step in range(1, 40))
curves = st.builds(
    lambda steps, start: QuantileCurve(
        tuple((i + 1) / (len(steps) + 1) for i in range(len(steps))),
        tuple(start + sum(steps[: i + 1]) for i in range(len(steps))),
    ),
    st.lists(st.floats(0, 0.5) | st.just(0.0), min_size=3, max_size=20),
    st.floats(0.3, 1),
)


@given(curves, st.floats(-5, 20), st.floats(0, 5))
def test_more_is_never_more_likely_to_be_exceeded(curve: QuantileCurve, value: float, more: float) -> None:
    assert 0 <= curve.above(value + more) <= curve.above(value) + 1e-12
    assert curve.above(value) <= 1


@given(curves, st.floats(0, 1), st.floats(0, 1))
def test_quantiles_never_fall(curve: QuantileCurve, one: float, other: float) -> None:
    first, last = curve.levels[0], curve.levels[-1]
    low, high = (first + (last - first) * share for share in sorted((one, other)))
    assert curve.values[0] <= curve.at(low) <= curve.at(high) + 1e-12
    assert curve.at(high) <= curve.values[-1]


@given(curves, st.floats(0, 1))
def test_a_quantile_is_exceeded_as_rarely_as_it_says(curve: QuantileCurve, share: float) -> None:
    level = curve.levels[0] + (curve.levels[-1] - curve.levels[0]) * share
    assert curve.above(curve.at(level) + 1e-9) <= 1 - level + 1e-6


def test_the_tails_go_on_as_the_curve_ended() -> None:
    curve = QuantileCurve((0.05, 0.2, 0.5, 0.8, 0.95), (0.8, 0.9, 1.0, 1.1, 1.2))
    # From 0.2 left to 0.05 left it took 0.1: another 0.1 leaves a quarter of that, and so on.
    assert curve.above(1.1) == pytest.approx(0.2)
    assert curve.above(1.2) == pytest.approx(0.05)
    assert curve.above(1.3) == pytest.approx(0.0125)
    assert curve.above(1.4) == pytest.approx(0.003125)
    assert curve.above(0.7) == pytest.approx(1 - 0.0125)
    assert curve.at(0.65) == pytest.approx(1.05)


def test_a_curve_without_a_tail_ends() -> None:
    curve = QuantileCurve((0.1, 0.9), (1.0, 1.0))
    assert curve.above(0.99) == 1.0
    assert curve.above(1.0) == pytest.approx(0.1)
    assert curve.above(1.01) == 0.0


def test_where_many_are_equal_they_are_not_above_themselves() -> None:
    curve = QuantileCurve((0.1, 0.4, 0.6, 0.9), (1.0, 2.0, 2.0, 3.0))
    assert curve.above(2.0) == pytest.approx(0.4)
    assert curve.above(1.999999) == pytest.approx(0.6, abs=1e-5)


@given(scores_and_groups)
def test_the_curve_holds_the_bounds_of_its_levels(drawn: tuple[list[float], list[int]]) -> None:
    scores, groups = drawn
    families = len(set(groups))
    # Levels on both sides of the median can be promised from three groups on.
    if families < 3:
        with pytest.raises(ValueError, match=r"."):
            group_curve(scores, groups, (0.05, 0.95))
        return
    curve = group_curve(scores, groups, LEVELS)
    for level, value in zip(curve.levels, curve.values, strict=True):
        if level >= 0.5:
            assert value == group_quantile(scores, groups, level)
        else:
            assert value == -group_quantile([-score for score in scores], groups, 1 - level)
    assert all(level <= families / (families + 1) + 1e-9 for level in curve.levels)


def test_the_curve_and_the_range_agree() -> None:
    scores, groups = draw_groups(random.Random(7), 60, 5)
    curve = group_curve(scores, groups, LEVELS)
    assert (curve.at(0.025), curve.at(0.975)) == group_range(scores, groups, 0.95)


def test_groups_never_seen_stay_below_each_quantile() -> None:
    rng = random.Random(11)
    below = dict.fromkeys((0.75, 0.9, 0.95), 0)
    trials = 400
    for _ in range(trials):
        scores, labels = draw_groups(rng, groups=40, rows=6)
        new = next(i for i, label in enumerate(labels) if label == 39)
        curve = group_curve(scores[:new], labels[:new], LEVELS)
        for level in below:
            below[level] += scores[-1] <= curve.at(level)
    for level, count in below.items():
        assert count / trials >= level - 3 * math.sqrt(level * (1 - level) / trials)


@pytest.mark.parametrize(
    ("levels", "values"),
    [
        ((0.1, 0.9), (1.0,)),
        ((0.1,), (1.0,)),
        ((0.9, 0.1), (1.0, 2.0)),
        ((0.0, 0.9), (1.0, 2.0)),
        ((0.6, 0.9), (1.0, 2.0)),
        ((0.1, 0.9), (2.0, 1.0)),
        ((0.1, 0.9), (1.0, math.inf)),
        ((0.1, 0.9), (math.nan, 1.0)),
    ],
)
def test_what_is_no_curve_is_refused(levels: tuple[float, ...], values: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"."):
        QuantileCurve(levels, values)


def test_a_curve_promises_nothing_beyond_its_levels() -> None:
    with pytest.raises(ValueError, match="knows levels"):
        QuantileCurve((0.1, 0.9), (1.0, 2.0)).at(0.95)
    with pytest.raises(ValueError, match="not a number"):
        QuantileCurve((0.1, 0.9), (1.0, 2.0)).above(math.nan)
