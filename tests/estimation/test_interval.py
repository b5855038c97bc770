"""The shipped interval, and what follows from it: bounds, and the probability of running out of memory."""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.errors import BadInput
from oomcast.estimation import Interval, interval_to_json, load_interval
from oomcast.estimation.interval import interval_from_json
from oomcast.units import GiB, MiB

KINDS = [load_interval(calibrated) for calibrated in (False, True)]
intervals = st.sampled_from(KINDS)
sizes = st.integers(64 * MiB, 200 * GiB)
coverages = st.floats(0.05, 0.95)


def shipped() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files("oomcast.estimation").joinpath("interval.json").read_text(encoding="utf-8")
    )
    return content


def test_the_shipped_file_has_both_kinds() -> None:
    content = shipped()
    for kind, interval in zip(("catalogue", "calibrated"), KINDS, strict=True):
        assert interval.coverage == 0.95
        assert interval.lower < 1 < interval.upper_one_sided <= interval.upper
        assert len(interval.curve.levels) >= 39
        assert interval.id.endswith(kind)
        assert "families" in interval.provenance
        assert interval.curve.values == tuple(content[kind]["quantiles"])


def test_a_file_read_and_written_is_the_same() -> None:
    content = shipped()
    kinds = {kind: interval_from_json(content, kind == "calibrated") for kind in ("catalogue", "calibrated")}
    assert interval_to_json(content["id"], kinds) == content


def test_without_a_calibrated_kind_the_wider_one_serves() -> None:
    content = shipped()
    del content["calibrated"]
    assert interval_from_json(content, calibrated=True) == KINDS[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"schema": 2}, "schema 3"),
        ({"doubt": {**shipped()["doubt"], "base": 0.0}}, "must not be negative"),
        ({"catalogue": {**shipped()["catalogue"], "upper": 9.0}}, "not the quantile"),
        ({"catalogue": {**shipped()["catalogue"], "quantiles": [1.0]}}, "as many values"),
    ],
)
def test_a_broken_file_is_told(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        interval_from_json({**shipped(), **change}, calibrated=False)


@given(intervals, sizes, coverages)
def test_bounds_surround_the_estimate(interval: Interval, total: int, coverage: float) -> None:
    floor = total // 3
    low, high = interval.around(total, floor, coverage)
    assert floor <= low <= total <= high
    assert total <= interval.not_exceeded(total, coverage) <= max(interval.around(total, 0, 0.95)[1], high)


@given(intervals, sizes, coverages, coverages)
def test_more_coverage_is_wider(interval: Interval, total: int, one: float, other: float) -> None:
    less, more = sorted((one, other))
    narrow, wide = interval.around(total, 0, less), interval.around(total, 0, more)
    assert wide[0] <= narrow[0] <= narrow[1] <= wide[1]
    assert interval.not_exceeded(total, less) <= interval.not_exceeded(total, more)


def test_the_default_coverage_gives_the_bounds_of_the_file() -> None:
    for interval in KINDS:
        total = 10 * GiB
        assert interval.around(total, 0) == (round(total * interval.lower), round(total * interval.upper))
        assert interval.not_exceeded(total) == round(total * interval.upper_one_sided)


@given(intervals, sizes, sizes, sizes)
def test_a_larger_device_is_never_likelier_to_be_full(interval: Interval, need: int, one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert 0 <= interval.chance_above(need, large) <= interval.chance_above(need, small) <= 1


@given(intervals, sizes, sizes, sizes)
def test_a_larger_need_is_never_likelier_to_fit(interval: Interval, room: int, one: int, other: int) -> None:
    less, more = sorted((one, other))
    assert interval.chance_above(less, room) <= interval.chance_above(more, room)


@pytest.mark.parametrize("interval", KINDS, ids=["catalogue", "calibrated"])
def test_the_chance_goes_with_the_one_sided_bound(interval: Interval) -> None:
    need = 8 * GiB
    assert interval.chance_above(need, interval.not_exceeded(need)) == pytest.approx(0.05, abs=0.002)
    assert interval.chance_above(need, 4 * need) < 0.001
    assert interval.chance_above(need, need // 4) > 0.999
    assert interval.chance_above(need, 0) == 1.0


def test_coverage_that_nobody_can_promise() -> None:
    for interval in KINDS:
        interval.check(0.95)
        interval.check(0.5)
        for coverage in (0.0, -1.0, 0.9999, 1.0, 2.0, math.nan):
            with pytest.raises(BadInput, match="coverage must be above 0"):
                interval.check(coverage)
