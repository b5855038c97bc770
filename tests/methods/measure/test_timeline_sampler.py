"""The sampled timeline: bounded, in order, and never without its highest point."""

from __future__ import annotations

import pytest

pytest.importorskip("sqlalchemy")

from hypothesis import given
from hypothesis import strategies as st

from oomcast.methods.measure.measurement import TimelineSampler


@given(st.lists(st.integers(0, 1 << 40), max_size=3000), st.integers(2, 200))
def test_bounded_ordered_and_with_its_highest_point(samples, most):
    timeline = TimelineSampler(most)
    for number, held in enumerate(samples):
        timeline.add(number * 0.01, held)
    points = timeline.points
    assert len(points) <= most
    assert [at for at, _ in points] == sorted(at for at, _ in points)
    assert max((held for _, held in points), default=None) == max(samples, default=None)
    assert len(points) >= min(len(samples), most // 2)
    given_points = {(round(number * 0.01, 4), held) for number, held in enumerate(samples)}
    assert set(points) <= given_points
