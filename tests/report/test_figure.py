from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ElementTree

import pytest
from estimate_builder import estimated, training

from oomcast.errors import BadInput
from oomcast.report import draw_estimate
from oomcast.report.words import COLOURS, LABELS
from oomcast.units import GiB, format_bytes

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_figure_has_the_bands_and_the_sizes_of_the_breakdown() -> None:
    estimate = estimated(training(name="a < b & c"))
    root = ElementTree.fromstring(draw_estimate(estimate))
    words = " ".join(text.text or "" for text in root.iter(f"{NAMESPACE}text"))
    assert "a < b & c" in words
    present = [part for part, size in estimate.breakdown.items() if size]
    for part in present:
        assert f"{LABELS[part]} {format_bytes(estimate.breakdown[part])}" in words
    bands = [path.attrib["fill"] for path in root.iter(f"{NAMESPACE}path")]
    assert {COLOURS[part] for part in present} <= set(bands)
    assert bands[-1] == COLOURS["context"]  # what lies lowest is drawn last


def test_all_that_is_drawn_is_within_the_figure() -> None:
    for estimate in (estimated(training(8, 4)), estimated(training(6, width=GiB), device="rtx-3060")):
        root = ElementTree.fromstring(draw_estimate(estimate))
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for line in root.iter(f"{NAMESPACE}line"):
            assert 0 <= float(line.attrib["x1"]) <= float(line.attrib["x2"]) <= width
            assert 0 <= float(line.attrib["y1"]) <= float(line.attrib["y2"]) <= height
        for bar in root.iter(f"{NAMESPACE}rect"):
            assert float(bar.attrib.get("x", 0)) + float(bar.attrib["width"]) <= width + 0.5
        for text in root.iter(f"{NAMESPACE}text"):
            assert float(text.attrib["y"]) < height


def test_without_a_history_there_is_nothing_to_draw() -> None:
    with pytest.raises(BadInput, match="follows no allocations"):
        draw_estimate(dataclasses.replace(estimated(training()), history=None))
