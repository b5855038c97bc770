"""The plot is a well-formed SVG whose points are where the figures say."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.accuracy import plot
from lab.accuracy.metrics import Judged
from lab.accuracy.plotting import PANEL
from oomcast.errors import BadInput
from oomcast.units import GiB, MiB

SVG = "{http://www.w3.org/2000/svg}"


def judged(estimate: int, truth: int | None) -> Judged:
    return Judged(estimate, truth, estimate * 9 // 10, estimate * 11 // 10, estimate, True, truth is not None, 1.0)


def points(drawing: str) -> list[tuple[float, float, str]]:
    root = ElementTree.fromstring(drawing)
    return [(float(c.get("cx", "")), float(c.get("cy", "")), c.get("class", "")) for c in root.iter(f"{SVG}circle")]


def test_equal_figures_lie_on_the_diagonal_and_errors_beside_it() -> None:
    drawn = points(plot("x", {"set": [judged(4 * GiB, 4 * GiB), judged(8 * GiB, 4 * GiB)]}, (0.9, 1.1)))
    assert [kind for _, _, kind in drawn] == ["in", "out"]
    (x, y, _), (outer_x, outer_y, _) = drawn
    assert math.isclose(x, PANEL - y, abs_tol=0.11)
    assert outer_x == x
    assert outer_y < y


def test_a_panel_for_each_set_with_a_figure() -> None:
    sets = {"one <1>": [judged(GiB, GiB)], "two": [judged(2 * GiB, GiB)], "calls only": [judged(GiB, None)]}
    drawing = plot("x & y", sets, (0.9, 1.1))
    assert len(points(drawing)) == 2
    assert "one &lt;1&gt;" in drawing
    assert "calls only" not in drawing


def test_nothing_to_draw_is_said() -> None:
    with pytest.raises(BadInput, match="needs rows with a measured figure"):
        plot("x", {"calls only": [judged(GiB, None)]}, (0.9, 1.1))


@given(st.lists(st.tuples(st.integers(MiB, 200 * GiB), st.integers(MiB, 200 * GiB)), min_size=1, max_size=20))
def test_every_point_is_inside_its_panel(figures: list[tuple[int, int]]) -> None:
    drawn = points(plot("x", {"set": [judged(*pair) for pair in figures]}, (0.8, 1.2)))
    assert len(drawn) == len(figures)
    assert all(0 <= x <= PANEL and 0 <= y <= PANEL for x, y, _ in drawn)
