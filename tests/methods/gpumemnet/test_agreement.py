"""An answer does not contradict itself: bound, chance and verdict agree, whoever gives it."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st
from learned_builder import MIB, made_up_artifact, small_network

from oomcast.estimation import ACCEPTED_RISK, Estimate, Target, Verdict, estimate_trace
from oomcast.methods.gpumemnet.classes import Classes, estimate_by_classes
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER
from oomcast.methods.gpumemnet.residual import estimate_by_residual
from oomcast.methods.tbem.answers import LearntTotal, with_learnt_total
from oomcast.spec import Place

ENVIRONMENT = "torch-2.4-cu121-eager"
SIZES = st.integers(600, 6000).map(lambda size: f"{size}MiB")
COVERAGES = st.sampled_from((0.5, 0.8, 0.95))


def check(found: Estimate) -> None:
    assert found.low <= found.device_total <= found.high
    assert found.will_not_exceed >= found.device_total
    assert (found.verdict is Verdict.FITS) <= (found.p_oom <= ACCEPTED_RISK)
    assert (found.verdict is Verdict.OOM) <= (found.p_oom >= 0.5)
    assert (found.p_oom > 0.5) <= (found.verdict is Verdict.OOM)
    if found.will_not_exceed <= found.device_usable and found.verdict is not Verdict.OOM:
        assert found.p_oom <= 1 - found.coverage + 1e-6


def check_bound(found: Estimate) -> None:
    """Where the estimate is all that must be there at once, its bound says the same as its chance."""
    if found.will_not_exceed > found.device_usable:
        assert found.p_oom >= min(1 - found.coverage, 0.5) - 1e-6
        if found.coverage >= 1 - ACCEPTED_RISK:
            assert found.p_oom > 0


@settings(deadline=None, max_examples=60)
@given(SIZES, COVERAGES, st.integers(0, 4), st.floats(-0.5, 0.5), st.booleans())
def test_estimators_agree_with_themselves(device: str, coverage: float, chosen: int, shift: float, known: bool) -> None:
    target = Target.of(Place(device, ENVIRONMENT, coverage=coverage))
    kinds = {} if known else {"kinds": ("linear",)}
    artifact = made_up_artifact(chosen=chosen % 3, shift=shift, **kinds)
    check(estimate_trace(small_network(), target))
    check(estimate_by_residual(small_network(), target, artifact))
    for name in (GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER):
        found = estimate_by_classes(small_network(), target, artifact, name)
        check(found)
        check_bound(found)


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=8), st.floats(0.05, 0.99), st.integers(0, 10_000))
def test_a_class_that_may_not_fit_counts(weights: list[float], coverage: float, limit: int) -> None:
    """As told of 0.1.0: "will not exceed 45.71 GiB" on 39.38 usable, and yet a chance below 0.1 %."""
    classes = Classes(1000, tuple(weight / sum(weights) for weight in weights))
    if classes.not_exceeded(coverage) <= limit:
        assert classes.above(limit) <= 1 - coverage + 1e-9
    elif classes.not_exceeded(coverage) > (classes.chosen + 1) * 1000:
        assert classes.above(limit) > 1 - coverage - 1e-9


@given(SIZES, st.integers(1, 8000), st.floats(0, 1))
def test_what_real_runs_teach_agrees(device: str, total: int, chance: float) -> None:
    static = estimate_trace(small_network(), Target.of(Place(device, ENVIRONMENT)))
    learnt = LearntTotal(
        total=total * MIB,
        low=total * MIB // 2,
        high=total * MIB * 2,
        coverage=0.95,
        will_not_exceed=total * MIB * 2,
        chance_above=lambda needed, usable: chance,
        remarks=(),
        provenance={"calibration": "made up"},
    )
    found = with_learnt_total(static, learnt, "job")
    check(dataclasses.replace(found, coverage=0.0))
