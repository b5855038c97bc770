"""The further models of `bench frameworks`: enough of them, and judged by the stricter bars. No framework is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from lab.benchmarks import further_flax, further_keras
from lab.benchmarks.frameworks import FRAMEWORKS, FURTHER, KNOWN, UNKNOWN, judge
from lab.benchmarks.frameworks_forms import Example, Form


def rows(models: int, ratio: float) -> list[dict[str, Any]]:
    """Every estimate is so many times the truth."""
    return [
        {"model": f"net{model}", "batch_size": size, "measured": 1_000_000, "estimated": round(1_000_000 * ratio)}
        for model in range(models)
        for size in (1, 2, 4)
    ]


@pytest.mark.parametrize("tables", [further_keras.MODELS, further_flax.MODELS], ids=["keras", "flax"])
def test_there_are_twenty_models_with_three_batches(tables: dict[str, Example]) -> None:
    assert len(tables) >= UNKNOWN.models
    assert all(len(set(example.batches)) == 3 for example in tables.values())
    assert set(FURTHER) < set(FRAMEWORKS)


def test_what_is_fed_has_the_batch_in_front() -> None:
    one = Example(lambda: None, Form((3, 4)), Form((), "int32"), (1, 2, 4))
    two = Example(lambda: None, (Form((13,)), Form((20,), "int32")), Form((1,)), (1, 2, 4))
    assert one.fed(lambda shape, dtype: (shape, dtype), 8) == (((8, 3, 4), "float32"), ((8,), "int32"))
    assert two.fed(lambda shape, dtype: shape, 2) == (((2, 13), (2, 20)), (2, 1))


def test_the_bars_of_models_kept_aside_are_stricter() -> None:
    assert judge("jax", rows(20, 1.01), UNKNOWN).holds
    assert not judge("jax", rows(19, 1.01), UNKNOWN).holds  # too few
    assert judge("jax", rows(20, 1.04), KNOWN).holds
    assert not judge("jax", rows(20, 1.04), UNKNOWN).holds


def test_the_truth_must_lie_in_the_interval_of_the_estimate() -> None:
    few_too_high = rows(20, 1.0)
    for row in few_too_high[:6]:  # a tenth: within p90's reach, but not within the interval's 93 %
        row["estimated"] = round(row["measured"] * 1.06)
    (told,) = (bar for bar in judge("jax", few_too_high, UNKNOWN).bars if "interval" in bar.what)
    assert not told.holds
