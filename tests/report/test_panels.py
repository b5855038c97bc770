from __future__ import annotations

from xml.etree import ElementTree

import pytest

from lab.panels import Curve, Panel, panels

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*shown: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(panels("a < b", shown, x="edge", y="GiB", x_ticks=(1, 10, 1000)))


def test_every_dot_and_line_is_drawn_within_its_panel() -> None:
    curve = Curve("batch <1>", [(1, 1), (10, 100)], [(1, 1), (3, 10), (10, 100)])
    picture = drawn(Panel("first", [curve]), Panel("second", [Curve("batch 2", [], [(2, 5)])]))
    dots = [one for one in picture.iter(f"{SVG}circle") if "dot" in one.attrib["class"]]
    frames = [one.attrib for one in picture.iter(f"{SVG}rect") if one.attrib["class"] == "panel"]
    assert len(dots) == 4
    assert len(list(picture.iter(f"{SVG}polyline"))) == 1
    places = [(float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in dots]
    for (x, y), frame in zip(places, [frames[0]] * 3 + [frames[1]], strict=True):
        assert float(frame["x"]) <= x <= float(frame["x"]) + float(frame["width"])
        assert float(frame["y"]) <= y <= float(frame["y"]) + float(frame["height"])
    (x1, y1), (x2, y2), (x3, y3) = places[:3]
    assert x1 < x2 < x3
    assert y1 - y2 == pytest.approx(y2 - y3, abs=0.2), "equal factors are equal distances"


def test_marks_beyond_the_values_are_left_out() -> None:
    words = [one.text for one in drawn(Panel("one", [Curve("c", [(1, 1), (10, 2)])])).iter(f"{SVG}text")]
    assert "10" in words
    assert "1000" not in words
    assert "a < b" in words


def test_what_has_no_logarithm_is_refused() -> None:
    with pytest.raises(ValueError, match="positive"):
        drawn(Panel("one", [Curve("c", [(0, 1)])]))
    with pytest.raises(ValueError, match="positive"):
        drawn(Panel("one", []))
