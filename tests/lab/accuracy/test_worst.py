"""Guesses at why come from figures: each is made to appear, and not to appear without its cause."""

from __future__ import annotations

import pytest
from case_builder import FEATURES, make_case, make_result

from lab.accuracy import Result, worst
from lab.accuracy.features import Features, kind_of
from oomcast.units import GiB, MiB


def why(*results: Result) -> str:
    """Of the worst row."""
    return worst(results, "no-workspace", 1)[0].why


def test_the_largest_errors_come_first() -> None:
    results = [
        make_result(make_case(1, "a", 1500 * MiB), 1000 * MiB),
        make_result(make_case(2, "b", 4500 * MiB), 1000 * MiB),
        make_result(make_case(3, "c", 1700 * MiB), 1000 * MiB),
    ]
    bad = worst(results, "no-workspace", 2)
    assert [one.case.row for one in bad] == ["2", "3"]
    assert bad[0].why == "2.93 GiB too little; nothing in its figures stands out"


@pytest.mark.parametrize(
    ("measured", "options", "said"),
    [
        (3 * GiB, {"unsupported": 7}, "7 kernels without a rule"),
        (1 * GiB, {"workspace": 900 * MiB}, "900.0 MiB are kernels' workspace at the peak"),
        (1 * GiB, {"cache": 900 * MiB}, "900.0 MiB are reserved and not in use"),
        (2648 * MiB, {}, "less than half of the context (500.0 MiB)"),
    ],
)
def test_parts_of_the_estimate_as_large_as_the_error(measured: int, options: dict[str, int], said: str) -> None:
    case = make_case(1, "a", measured)
    assert said in why(make_result(case, 2000 * MiB, **options))
    if options:
        assert said not in why(make_result(case, 2000 * MiB))


def test_convolutions_with_little_workspace() -> None:
    features = Features(1000, 4000, 500, 2000, 3000, convolutions=53)
    result = make_result(make_case(1, "a", 9 * GiB), 2 * GiB, workspace=16 * MiB, features=features)
    assert "53 convolutions, with only 16.0 MiB of workspace" in why(result)


def test_a_run_that_cannot_have_ended_well() -> None:
    assert "more than the 39.38 GiB of the GPU: a failed run?" in why(make_result(make_case(1, "a", 5 * GiB), 60 * GiB))
    heavy = Features(FEATURES.parameters, 2 * GiB, 0, 3 * GiB, 0)
    result = make_result(make_case(1, "a", 5 * GiB), 9 * GiB, features=heavy)
    assert "less than the 5.44 GiB of context, weights and what forward keeps: a failed run?" in why(result)
    assert "a failed run?" not in why(make_result(make_case(1, "a", 6 * GiB), 9 * GiB, features=heavy))


def test_rows_of_the_same_model_tell_how_the_error_grows() -> None:
    right = [make_result(make_case(i, "a", 1500 * MiB, batch_size=i), 1000 * MiB) for i in (8, 16)]
    wrong = make_result(make_case(32, "a", 900 * MiB, batch_size=32), 2000 * MiB)
    assert "the same model is right at batch 8, 16" in why(*right, wrong)
    growing = [make_result(make_case(i, "a", (1500 + 50 * i) * MiB, batch_size=i), 1000 * MiB) for i in (8, 16, 32)]
    assert "in proportion to the batch" in why(*growing)
    constant = [make_result(make_case(i, "a", (1900 + i) * MiB, batch_size=i), 1000 * MiB) for i in (8, 16, 32)]
    assert "the same at every batch size" in why(*constant)


def test_a_whole_campaign_that_is_off_by_as_much() -> None:
    results = [make_result(make_case(i, f"{i}", (2300 + i) * MiB), 1000 * MiB) for i in range(6)]
    assert "the whole campaign is off by as much" in why(*results)


def test_kinds_of_models_by_what_they_run() -> None:
    def kind(convolutions: int, attentions: int) -> str:
        return kind_of(Features(1, 4, 1, 1, 1, convolutions, attentions))

    assert [kind(1, 12), kind(53, 0), kind(30, 4), kind(1, 0)] == ["transformer", "convolutional", "hybrid", "other"]
