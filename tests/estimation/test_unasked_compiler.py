"""Where XLA plans a job's memory and was not asked, the bounds are as wide as the model of it was seen to be off."""

from __future__ import annotations

import dataclasses

import oomcast
from oomcast.estimation import estimate_trace, target_of
from oomcast.report.words import interval_words
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, TraceBuilder
from oomcast.units import GiB


def estimate(*, is_modelled: bool) -> oomcast.Estimate:
    record = TraceBuilder()
    record.enter(Phase.FORWARD, 0)
    record.allocate(8 * GiB, Category.ACTIVATION, "tensor")
    trace = dataclasses.replace(record.trace({"jax": "0.10"}, {}), plan_is_modelled=is_modelled)
    spec = Spec.read("zoo:mlp", device="a100-40gb", framework="jax", batch_size=1, use_calibration=False)
    return estimate_trace(trace, target_of(spec))


def test_bounds_around_a_modelled_plan_hold_what_xla_was_seen_to_say() -> None:
    asked, modelled = estimate(is_modelled=False), estimate(is_modelled=True)

    assert modelled.device_total == asked.device_total
    assert modelled.high - modelled.device_total > 5 * (asked.high - asked.device_total)
    assert modelled.will_not_exceed > asked.will_not_exceed
    assert modelled.low < 0.8 * modelled.device_total < asked.low


def test_the_reason_is_told() -> None:
    assert "since XLA's compiler was not asked" in interval_words(estimate(is_modelled=True))
    assert "compiler" not in interval_words(estimate(is_modelled=False))
