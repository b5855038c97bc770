"""TensorFlow's pool grows by regions that double: a little more of tensors may take twice the memory of the card."""

from __future__ import annotations

import pytest

import oomcast
from oomcast.estimation import estimate_trace, target_of
from oomcast.spec import Spec
from oomcast.trace import Category, Phase, TraceBuilder
from oomcast.units import MiB

REGIONS = 2046 * MiB
"""2, 4, 8, … 1024 MiB."""


def estimate(framework: str, tensors: int, **options: object) -> oomcast.Estimate:
    """A job with as many tensors of 1 MiB."""
    record = TraceBuilder()
    record.enter(Phase.FORWARD, 0)
    for _ in range(tensors):
        record.allocate(MiB, Category.ACTIVATION, "tensor")
    trace = record.trace({framework: "2"}, {})
    spec = Spec.read("zoo:mlp", device="a100-40gb", framework=framework, batch_size=1, use_calibration=False, **options)
    return estimate_trace(trace, target_of(spec))


def test_a_pool_that_is_nearly_full_may_double() -> None:
    answer = estimate("tensorflow", 2040)

    assert answer.peak_reserved == REGIONS
    assert answer.will_not_exceed >= answer.device_total + 1024 * MiB
    assert answer.high >= answer.will_not_exceed
    assert answer.p_oom == 0


def test_a_pool_with_room_stays() -> None:
    answer = estimate("tensorflow", 1050)

    assert answer.peak_reserved == REGIONS
    assert answer.will_not_exceed < answer.device_total + 300 * MiB
    assert answer.low <= answer.device_total - 1024 * MiB + 300 * MiB  # a little less would have done with half


@pytest.mark.parametrize(
    ("framework", "options"), [("torch", {}), ("tensorflow", {"alloc_conf": "allow_growth:false"})]
)
def test_pools_that_do_not_double_are_as_before(framework: str, options: dict[str, object]) -> None:
    answer = estimate(framework, 2040, **options)

    assert answer.will_not_exceed < 1.1 * answer.device_total
