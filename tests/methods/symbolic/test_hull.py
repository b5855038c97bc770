from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.methods.equations.symbolic.samples import SampledHull

TRIANGLE = [(1.0, 1.0), (1.0, 100.0), (100.0, 1.0)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 1e6), st.floats(-1e6, 0)), min_size=3, max_size=12), st.data())
def test_mixtures_of_samples_are_inside_their_hull(rows: list[tuple[float, float]], data: st.DataObject) -> None:
    hull = SampledHull(rows)
    first, second = data.draw(st.sampled_from(rows)), data.draw(st.sampled_from(rows))
    middle = (math.sqrt(first[0] * second[0]), (first[1] + second[1]) / 2)
    assert hull.distance(middle) < 1e-4
    above = (max(row[0] for row in rows) * 2, first[1])
    assert hull.distance(above) > 0


def test_a_corner_of_the_box_without_samples_is_outside() -> None:
    hull = SampledHull(TRIANGLE)
    assert hull.distance((10, 10)) == 0, "half way by logarithms"
    assert hull.distance((100, 100)) == pytest.approx(1)
    assert hull.distance((10, 100)) == pytest.approx(0.5)
    assert hull.distance((0, 1)) == math.inf


def test_a_value_that_never_varied_counts_when_it_does() -> None:
    hull = SampledHull([(1.0, 5.0), (3.0, 5.0)])
    assert hull.distance((2, 5)) == 0
    assert hull.distance((2, 50)) == pytest.approx(math.log(10))


@pytest.mark.parametrize("rows", [[], [[math.nan]], [1.0, 2.0]])
def test_what_is_no_table_is_refused(rows: list[object]) -> None:
    with pytest.raises(ValueError, match="rows of finite numbers"):
        SampledHull(rows)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="2 finite numbers"):
        SampledHull(TRIANGLE).distance((1.0,))
