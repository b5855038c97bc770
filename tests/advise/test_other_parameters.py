"""Parameters other than the batch size, with real captures: the answer fits, and the next value does not."""

from __future__ import annotations

from typing import Any

import pytest

import oomcast


@pytest.mark.parametrize(
    ("parameter", "job", "option", "step", "settings"),
    [
        ("seq-len", "zoo:gpt2", "seq_len", 8, {"device": "gtx-1650", "batch_size": 3, "optimizer": "sgd"}),
        ("input-size", "zoo:resnet18", "input_shape", 32, {"device": "gtx-1060-3gb", "batch_size": 16}),
    ],
)
def test_the_answer_fits_and_the_next_value_does_not(
    parameter: str, job: str, option: str, step: int, settings: dict[str, Any]
) -> None:
    found = oomcast.fit(job, parameter=parameter, steps=2, curve=False, **settings)
    assert found.value is not None
    assert found.value % step == 0
    assert not found.unverified

    def risk(value: int) -> float:
        options: dict[str, Any] = {option: value if option == "seq_len" else f"3x{value}x{value}"}
        return oomcast.estimate(job, steps=2, **options, **settings).p_oom

    assert risk(found.value) <= 0.05 < risk(found.value + step)
