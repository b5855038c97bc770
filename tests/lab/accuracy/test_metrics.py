"""The figures of the table, by numbers that can be checked by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from case_builder import make_case, make_result
from hypothesis import given
from hypothesis import strategies as st

from lab.accuracy import CONSTANT, fit_interval, judge, judged_pairs, sample
from lab.accuracy.judging import judge_parts
from lab.accuracy.mem_tracker import Tracked
from lab.accuracy.metrics import Judged, constants, quantile, score
from oomcast.errors import BadInput
from oomcast.units import GiB, MiB


def judged(estimate: int, truth: int | None, *, call: bool = True, ran: bool = True) -> Judged:
    return Judged(estimate, truth, estimate - 10, estimate + 10, estimate + 5, call, ran, 2.0)


def test_score_by_hand() -> None:
    rows = [judged(90, 100), judged(105, 100), judged(100, 100), judged(150, 100)]
    found = score("e", "d", rows, failed=1)
    assert found.rows == 4
    assert found.failed == 1
    assert found.mre == pytest.approx(0.075)
    assert found.p90 == pytest.approx(0.1 + 0.7 * 0.4)
    assert found.under == 0.25
    assert found.covered == 0.75
    assert found.exceeded == 0.25
    assert found.headroom == pytest.approx((-0.05 + 0.10 + 0.05 + 0.55) / 4)
    assert found.seconds == 2.0


def test_calls_are_counted_on_each_side() -> None:
    rows = [
        judged(1, None, call=True, ran=True),
        judged(1, None, call=False, ran=True),
        judged(1, None, call=False, ran=False),
        judged(1, None, call=True, ran=False),
        judged(1, None, call=False, ran=False),
    ]
    found = score("e", "d", rows)
    assert (found.runs, found.runs_right) == (2, 0.5)
    assert (found.ooms, found.ooms_right) == (3, pytest.approx(2 / 3))
    assert found.mre is None
    assert found.under is None


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30))
def test_quantiles_stay_within_the_values(values: list[float]) -> None:
    assert quantile(values, 0.0) == min(values)
    assert quantile(values, 1.0) == max(values)
    assert min(values) <= quantile(values, 0.37) <= max(values)


def test_a_constant_never_comes_from_its_own_family() -> None:
    found = constants([1.0, 100.0, 3.0, None], ["a", "b", "a", "b"])
    assert found == [100.0, 2.0, 100.0, 2.0]
    assert constants([1.0, 2.0], ["a", "a"]) == [None, None]


def test_the_constant_replaces_the_context_campaign_by_campaign() -> None:
    results = [
        make_result(make_case(1, "a", 1400 * MiB), 1000 * MiB),
        make_result(make_case(2, "b", 2400 * MiB), 2000 * MiB),
        make_result(make_case(3, "a", 1900 * MiB, campaign="two"), 1000 * MiB),
        make_result(make_case(4, "b", 2900 * MiB, campaign="two"), 2000 * MiB),
    ]
    catalogue, constant = judge("made", results, ["no-workspace"])
    assert constant.estimator == "no-workspace" + CONSTANT
    assert constant.mre == 0.0
    assert catalogue.mre == pytest.approx((100 / 1400 + 400 / 2900) / 2)


def test_a_run_that_failed_is_judged_by_its_call_only() -> None:
    results = [
        make_result(make_case(1, "a", 1500 * MiB), 1000 * MiB),
        make_result(make_case(2, "b", None, ran=False), 90 * GiB, fits=False),
    ]
    found = judge("made", results, ["no-workspace"])[0]
    assert (found.runs_right, found.ooms_right) == (1.0, 1.0)
    assert found.mre == 0.0


def test_parts_are_scored_apart_by_what_was_fitted_on_all() -> None:
    results = [
        make_result(make_case(1, "a", 1400 * MiB), 1000 * MiB),
        make_result(make_case(2, "b", 2400 * MiB), 2000 * MiB),
        make_result(make_case(3, "c", 3000 * MiB), 2000 * MiB),
    ]
    parts = judge_parts(results, ["no-workspace"], lambda result: "c" if result.case.family == "c" else "rest")
    by_name = {(score.data, score.estimator): score for score in parts}
    assert {part for part, _ in by_name} == {"c", "rest"}
    # The other two hold 400 MiB beside the allocator, and that is what the third is given.
    assert by_name["c", "no-workspace" + CONSTANT].mre == pytest.approx(600 / 3000)
    assert by_name["rest", "no-workspace"].rows == 2


def test_a_run_without_an_answer_of_mem_tracker_counts_as_failed() -> None:
    plain = [make_result(make_case(i, "ab"[i], 1000 * MiB), 900 * MiB) for i in range(2)]
    results = [replace(plain[0], tracked=Tracked(800 * MiB, 1.5)), replace(plain[1], tracked=Tracked(None, 0.0, "no"))]
    (found,) = judge("made", results, ["mem-tracker"])
    assert (found.rows, found.failed, found.seconds) == (1, 1, 1.5)
    assert found.mre == pytest.approx(0.2)
    assert found.covered is None


def test_a_sample_takes_families_in_turn_and_is_always_the_same() -> None:
    cases = [make_case(i, family, GiB) for i, family in enumerate("aaaaaaaabbc")]
    chosen = sample(cases, 6)
    assert chosen == sample(cases, 6)
    assert len(set(chosen)) == 6
    assert sorted(case.family for case in chosen) == ["a", "a", "a", "b", "b", "c"]
    assert sample(cases, 99) == tuple(cases)


def test_the_interval_is_fitted_on_ratios_by_family() -> None:
    results = [make_result(make_case(i, f"family {i}", round((1500 + i) * MiB)), 1000 * MiB) for i in range(-60, 61)]
    fitted = fit_interval(judged_pairs(results, "no-workspace"))
    assert 0.96 <= fitted.interval.lower <= 0.964
    assert 1.036 <= fitted.interval.upper <= 1.04
    assert 1.03 <= fitted.one_sided < fitted.interval.upper
    assert 0.03 <= fitted.exceeded <= 0.06
    assert "121 runs in 121 model families" in fitted.interval.provenance


def test_an_interval_from_few_families_is_refused() -> None:
    results = [make_result(make_case(i, "ab"[i % 2], 1500 * MiB), 1000 * MiB) for i in range(50)]
    with pytest.raises(BadInput, match="2 model families are too few"):
        fit_interval(judged_pairs(results, "no-workspace"))
