from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from learned_builder import BATCH, MIB, WORKLOAD, made, made_up_artifact, small_network, trace_of

from oomcast.errors import BadInput
from oomcast.estimation import Target, Verdict, estimate_trace, find_estimator
from oomcast.methods.gpumemnet import Artifact
from oomcast.methods.gpumemnet.classes import Classes, estimate_by_classes
from oomcast.methods.gpumemnet.estimators import GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER, LEARNED
from oomcast.methods.gpumemnet.features import KINDS
from oomcast.methods.gpumemnet.residual import estimate_by_residual
from oomcast.methods.tbem import live_peak
from oomcast.spec import Place

ENVIRONMENT = "torch-2.4-cu121-eager"


@pytest.fixture
def target() -> Target:
    return Target.of(Place("a100-40gb", ENVIRONMENT))


@pytest.mark.parametrize("estimator", [GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER])
def test_a_class_becomes_bytes_with_this_machines_context(target: Target, estimator: str) -> None:
    found = estimate_by_classes(small_network(), target, made_up_artifact(chosen=1), estimator)
    context = found.breakdown["context"]
    assert found.device_total == 2000 * MIB + context - 500 * MIB
    assert found.low <= found.device_total <= found.high
    assert found.will_not_exceed >= found.device_total
    assert found.verdict is Verdict.FITS
    assert found.provenance["estimator"] == estimator
    assert found.provenance["out_of_distribution"] == []
    assert found.provenance["classes"][0]["chosen"] == 1


def test_an_unseen_kind_of_layer_is_told_and_widens(target: Target) -> None:
    known = estimate_by_classes(small_network(), target, made_up_artifact(), GPUMEMNET_MLP)
    trained = made_up_artifact(kinds=("linear", "activation", "batch_norm"))
    found = estimate_by_classes(small_network(), target, trained, GPUMEMNET_MLP)
    assert any("dropout were never seen" in sentence for sentence in found.assumptions)
    assert found.high - found.low > known.high - known.low
    assert found.will_not_exceed > known.will_not_exceed


def test_what_was_never_seen_makes_running_out_of_memory_likelier() -> None:
    """Of a card that the chosen class nearly fills: one class more, as on the bound, would not fit."""
    small = Target.of(Place("gtx-1060-3gb", ENVIRONMENT))
    known, unknown = (
        dataclasses.replace(made_up_artifact(chosen=1, kinds=kinds), trained={})
        for kinds in (KINDS, ("linear", "activation", "batch_norm"))
    )
    before, after = (estimate_by_classes(small_network(), small, one, GPUMEMNET_MLP) for one in (known, unknown))
    assert not before.provenance["out_of_distribution"]
    assert after.p_oom > before.p_oom


def test_a_class_below_the_jobs_own_tensors_is_moved_up_and_told(target: Target) -> None:
    """The highest class that was learnt ends at 4000 MiB; this job's tensors hold 24 GiB."""
    large = trace_of([made("aten.addmm", "0", (BATCH, 3 << 29)), made("aten.addmm", "0", (BATCH, 1))])
    assert sum(live_peak(large).values()) > 24 << 30
    found = estimate_by_classes(large, target, made_up_artifact(chosen=1), GPUMEMNET_MLP)
    assert found.device_total >= (24 << 30) + found.breakdown["context"]
    assert any("its tensors alone hold 24.00 GiB" in sentence for sentence in found.assumptions)
    assert found.will_not_exceed > found.device_total, "what was not learnt has a wider bound"
    small = Target.of(Place("rtx-3090", ENVIRONMENT))
    assert estimate_by_classes(large, small, made_up_artifact(chosen=1), GPUMEMNET_MLP).verdict is Verdict.OOM


@pytest.mark.parametrize("device", ["gtx-1060-3gb", "gtx-1060-6gb", "a100-40gb"])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
@pytest.mark.parametrize("chosen", [0, 1, 2, 3])
def test_what_fits_will_not_exceed_the_card(device: str, coverage: float, chosen: int) -> None:
    place = Target.of(Place(device, ENVIRONMENT, coverage=coverage))
    found = estimate_by_classes(small_network(), place, made_up_artifact(chosen=chosen), GPUMEMNET_MLP)
    assert found.verdict is not Verdict.FITS or found.will_not_exceed <= found.device_usable


@pytest.mark.parametrize(
    ("device", "workload", "words"),
    [("rtx-3090", {}, "not rtx-3090"), ("a100-40gb", {"optimizer": "sgd"}, "not sgd"),
     ("a100-40gb", {"precision": "bf16"}, "not bf16")],
)  # fmt: skip
def test_other_devices_optimizers_and_precisions_are_told(device: str, workload: dict[str, str], words: str) -> None:
    trace = dataclasses.replace(small_network(), workload=WORKLOAD | workload)
    target = Target.of(Place(device, ENVIRONMENT))
    for found in (
        estimate_by_classes(trace, target, made_up_artifact(), GPUMEMNET_MLP),
        estimate_by_residual(trace, target, made_up_artifact()),
    ):
        assert any(words in sentence for sentence in found.provenance["out_of_distribution"])


def test_the_residual_moves_the_simulators_answer(target: Target) -> None:
    base = estimate_trace(small_network(), target)
    found = estimate_by_residual(small_network(), target, made_up_artifact(shift=0.1))
    assert found.device_total == pytest.approx(base.device_total * math.exp(0.1), rel=1e-6)
    assert found.breakdown["learned"] == found.device_total - base.device_total
    assert found.peak_reserved + found.breakdown["context"] == found.device_total
    assert found.low < found.device_total < found.high
    assert found.provenance["estimator"] == "learned"
    assert [one["width"] for one in found.provenance["classes"]] == [1000 * MIB, 2000 * MIB, 8000 * MIB]


def test_what_was_never_seen_keeps_the_simulators_answer_with_a_wider_interval(target: Target) -> None:
    odd = trace_of([made("aten.im2col", "0", (BATCH, 1 << 20)), made("aten.addmm", "1", (BATCH, 4))])
    base = estimate_trace(odd, target)
    found = estimate_by_residual(odd, target, made_up_artifact(shift=0.1))
    seen = estimate_by_residual(odd, target, made_up_artifact(shift=0.1, kinds=("aten.im2col", "linear")))
    assert found.device_total == base.device_total
    assert found.low <= base.low
    assert found.high >= base.high
    assert found.high / found.low > seen.high / seen.low
    assert any("aten.im2col were never seen" in sentence for sentence in found.assumptions)
    assert seen.provenance["out_of_distribution"] == []


def test_a_residual_never_goes_below_parameters_and_context(target: Target) -> None:
    found = estimate_by_residual(small_network(), target, made_up_artifact(shift=-20.0))
    assert found.device_total >= found.breakdown["context"] + found.breakdown["parameter"]
    assert sum(found.breakdown.values()) == found.device_total


def test_more_than_the_device_has_stays_out_of_memory() -> None:
    large = trace_of([made("aten.addmm", "0", (BATCH, 6 << 30))])
    found = estimate_by_residual(large, Target.of(Place("a100-40gb", ENVIRONMENT)), made_up_artifact(shift=-0.1))
    assert found.verdict is Verdict.OOM


def test_without_a_residual_it_says_so(target: Target) -> None:
    with pytest.raises(BadInput, match="hold none over the simulator"):
        estimate_by_residual(small_network(), target, Artifact({}, None))


@given(st.lists(st.floats(0.001, 1), min_size=2, max_size=8), st.floats(0.05, 0.99), st.integers(0, 10_000))
def test_classes_keep_their_order(weights: list[float], coverage: float, limit: int) -> None:
    total = sum(weights)
    classes = Classes(1000, tuple(weight / total for weight in weights))
    low, high = classes.edges(coverage)
    assert low <= classes.chosen * 1000 < high
    assert classes.edges(coverage, wider=1)[1] == high + 1000
    inside = sum(classes.probabilities[low // 1000 : high // 1000])
    assert inside >= coverage - 1e-9
    assert classes.not_exceeded(coverage) >= (classes.chosen + 1) * 1000
    assert 0 <= classes.above(limit + 1) <= classes.above(limit) <= 1
    assert classes.above(0) == pytest.approx(1)


@pytest.mark.parametrize("name", [GPUMEMNET_MLP, GPUMEMNET_TRANSFORMER, LEARNED])
def test_the_shipped_estimators_answer(target: Target, name: str) -> None:
    found = find_estimator(name).estimate_trace(small_network(), target)
    assert found.provenance["estimator"] == name
    assert sum(found.breakdown.values()) == found.device_total
    assert found.low <= found.device_total <= found.high
