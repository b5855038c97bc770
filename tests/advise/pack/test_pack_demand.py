"""Intervals as distributions, and their sums, against what can be computed otherwise."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("numpy")

from pack_builder import demand, sure

from oomcast.advise.pack import Demand, Problem, parse_cards
from oomcast.advise.pack.demand import lower_equivalent, overflow_risk
from oomcast.advise.pack.problem import card_risk
from oomcast.errors import BadInput
from oomcast.estimation import load_interval
from oomcast.units import GiB

CARD = parse_cards("a100-40gb")[0].usable


def test_one_job_has_the_risk_that_its_interval_says() -> None:
    curve = load_interval().curve
    for size in (20.0, 30.0, 35.0, 36.8, 38.0, 39.4, 45.0):
        found = overflow_risk([demand(size)], CARD)
        assert found == pytest.approx(curve.above(CARD / (size * GiB)), abs=2e-3)
        # Never below it, but in the tail of jobs that hardly ever fit, whose ends are drawn as straight lines.
        assert found >= curve.above(CARD / (size * GiB)) - 1e-9 or size * GiB > CARD


def test_the_sum_is_that_of_many_draws() -> None:
    jobs, draw = [demand(size) for size in (5.0, 8.0, 12.0, 12.5)], random.Random(4)
    sums = [sum(job.drawn(draw.random()) for job in jobs) for _ in range(20_000)]
    for capacity in (37.0, 38.0, 39.5, 41.0):
        drawn = sum(total > capacity * GiB for total in sums) / len(sums)
        assert overflow_risk(jobs, round(capacity * GiB)) == pytest.approx(drawn, abs=0.02)


def test_estimates_that_are_never_wrong_add_up() -> None:
    assert overflow_risk([sure(10), sure(20)], round(30.1 * GiB)) == 0.0
    assert overflow_risk([sure(10), sure(20)], round(29.9 * GiB)) == 1.0


def test_jobs_of_one_model_err_together() -> None:
    curve, one = load_interval().curve, demand(9)
    assert one.with_others([one, one, one]).total == 4 * one.total
    together = card_risk([("model", one)] * 4, CARD)
    apart = card_risk([(f"model {number}", one) for number in range(4)], CARD)
    assert together == pytest.approx(curve.above(CARD / (36 * GiB)), abs=2e-3)
    assert apart != pytest.approx(together, abs=1e-3)


def test_different_curves_add_by_quantile() -> None:
    narrow = Demand.from_bounds(10 * GiB, 9 * GiB, 11 * GiB)
    wide = Demand.from_bounds(10 * GiB, 5 * GiB, 20 * GiB)
    both = narrow.with_others([wide])
    assert both.total == 20 * GiB
    assert both.ratios.at(0.975) * both.total == pytest.approx(31 * GiB)
    assert both.ratios.at(0.025) * both.total == pytest.approx(14 * GiB)


def test_a_job_alone_keeps_the_estimates_own_risk() -> None:
    """It can release its cache when the card is full; beside others that does not help."""
    one = Demand(round(39.3 * GiB), load_interval().curve, lone_risk=0.01)
    assert card_risk([("a", one)], CARD) == 0.01
    assert card_risk([("a", one), ("b", sure(0.1))], CARD) > 0.4


SIZES = st.lists(st.floats(0.5, 30.0), min_size=1, max_size=6)


@given(sizes=SIZES, more=st.floats(0.1, 10.0), groups=st.lists(st.sampled_from("abc"), min_size=7, max_size=7))
def test_the_risk_never_falls_when_a_job_is_added(sizes: list[float], more: float, groups: list[str]) -> None:
    members = [(group, demand(size)) for group, size in zip(groups, sizes, strict=False)]
    assert card_risk([*members, (groups[-1], demand(more))], CARD) >= card_risk(members, CARD) - 2e-3


@given(sizes=SIZES, risk=st.floats(0.001, 0.5), share=st.floats(1.0, 64.0))
def test_the_linear_statement_excludes_nothing_that_holds(sizes: list[float], risk: float, share: float) -> None:
    jobs, rate = [demand(size) for size in sizes], share / CARD
    if overflow_risk(jobs, CARD) <= risk:
        assert sum(lower_equivalent(job, rate) for job in jobs) <= CARD - math.log1p(-risk) / rate


@given(total=st.integers(1, 1 << 40), below=st.floats(0.01, 1.0), above=st.floats(1.0, 10.0), chance=st.floats(0, 1))
def test_any_sensible_interval_is_a_distribution(total: int, below: float, above: float, chance: float) -> None:
    low, high = max(int(total * below), 1), math.ceil(total * above)
    found = Demand.from_bounds(total, low, high)
    assert found.drawn(chance) >= 1
    assert 0.0 <= overflow_risk([found], max(total, 1 << 30)) <= 1.0
    assert low * 0.0 <= found.mean <= 20 * high
    assert found.drawn(0.9) <= found.drawn(0.99)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ((0, None, None), "above 0"),
        ((10, 4, None), "both low and high"),
        ((10, 12, 14), "contradict each other"),
        ((10, 4, 8), "contradict each other"),
    ],
)
def test_contradictory_limits_are_told(bounds: tuple[int, int | None, int | None], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        Demand.from_bounds(*bounds)


def test_coverage_is_a_share() -> None:
    with pytest.raises(BadInput, match="between 0 and 1"):
        Demand.from_bounds(10, 9, 11, coverage=1.0)


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, math.nan])
def test_a_risk_is_a_share(risk: float) -> None:
    with pytest.raises(BadInput, match="risk must lie between"):
        Problem([], parse_cards("a100"), risk)
