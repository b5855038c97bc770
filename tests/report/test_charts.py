from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomcast.report.charts import Limit, Series, bars, chart

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)
NAMESPACE = "{http://www.w3.org/2000/svg}"


@given(points=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20), diagonal=st.booleans())
def test_every_point_is_drawn_within_the_panel(points: Sequence[tuple[float, float]], diagonal: bool) -> None:
    root = ElementTree.fromstring(chart("a < b", [Series("x & y", points)], x="x", y="y", diagonal=diagonal))
    dots = [one for one in root.iter(f"{NAMESPACE}circle") if "dot" in one.attrib["class"]]
    assert len(dots) == len(points)
    for dot in dots:
        assert 0 <= float(dot.attrib["cx"]) <= float(root.attrib["width"])
        assert 0 <= float(dot.attrib["cy"]) <= float(root.attrib["height"])


@given(values=st.lists(st.tuples(st.sampled_from(["a<b", "c&d"]), NUMBERS), max_size=6))
def test_bars_are_as_long_as_their_values(values: list[tuple[str, float]]) -> None:
    root = ElementTree.fromstring(bars("bars", values, "{:g}".format))
    drawn = [one for one in root.iter(f"{NAMESPACE}rect") if "bar" in one.attrib["class"]]
    assert len(drawn) == len(values)
    longest = max((abs(value) for _, value in values), default=0)
    for one, (_, value) in zip(drawn, values, strict=True):
        if abs(value) == longest > 0:
            assert float(one.attrib["width"]) == max(float(other.attrib["width"]) for other in drawn)


def test_a_limit_is_a_line_with_words_and_no_data() -> None:
    drawn = chart(
        "c", [Series("s", [(1, 1), (2, 2)])], x="x", y="y", limits=[Limit("end < here", y=5), Limit("at", x=9)]
    )
    root = ElementTree.fromstring(drawn)
    across, up = (one.attrib for one in root.iter(f"{NAMESPACE}line") if one.attrib["class"] == "limit")
    assert across["y1"] == across["y2"]
    assert 0 < float(across["y1"]) < float(root.attrib["height"])
    assert up["x1"] == up["x2"]
    assert 0 < float(up["x1"]) < float(root.attrib["width"])
    assert len([one for one in root.iter(f"{NAMESPACE}circle") if "dot" in one.attrib["class"]]) == 2
    assert "end < here" in [one.text for one in root.iter(f"{NAMESPACE}text")]


def test_nothing_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="needs points"):
        chart("empty", [], x="x", y="y")
