"""The flame graph of the peak in a real browser: widths, closer looks, keyboard, both arrangements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from estimate_builder import estimated, training

from browser import Opened, serious_faults
from oomcast.estimation import Estimate
from oomcast.report import estimate_html
from oomcast.report.held_tree import line_tree, module_tree
from oomcast.units import MiB, format_bytes

SCREEN = {"width": 1200, "height": 900}


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return estimated(training(6, 3, width=40 * MiB))


@pytest.fixture(scope="module")
def file(estimate: Estimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flame") / "report.html"
    path.write_text(estimate_html(estimate), encoding="utf-8")
    return path


def frame(name: str) -> str:
    return f'#flame .tile[aria-label^="{name}:"]'


def width(opened: Opened, selector: str) -> float:
    found: float = opened.page.locator(selector).first.bounding_box()["width"]
    return found


def test_bars_are_as_wide_as_what_is_held(browser: Any, file: Path, estimate: Estimate) -> None:
    assert estimate.history is not None
    opened = Opened(browser, file, viewport=SCREEN)
    whole = width(opened, "#flame .frames")
    root = module_tree(estimate.history)
    for child in root.children:
        if whole * child.total / root.total > 2:
            wanted = pytest.approx(whole * child.total / root.total, abs=1)
            assert width(opened, frame(child.name)) == wanted
    assert format_bytes(estimate.peak_allocated) in opened.text("#flame .tile >> nth=0")
    opened.page.locator(frame("5.linear")).hover()
    told = opened.text("#flame .readout")
    assert "blocks.5.linear" in told
    assert "% of the tensors at the peak" in told
    assert "Activation" in told
    assert opened.problems == []


def test_a_bar_is_opened_and_left_by_pointer_and_by_keyboard(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport=SCREEN)
    whole = width(opened, "#flame .frames")
    narrow = width(opened, frame("5.linear"))
    assert narrow < whole / 2
    opened.page.click(frame("5.linear"))
    assert width(opened, frame("5.linear")) == pytest.approx(whole, abs=1)
    assert opened.page.locator(frame("0.linear")).count() == 0
    opened.page.click(frame("all tensors"))
    assert width(opened, frame("5.linear")) == pytest.approx(narrow, abs=1)

    focused = "document.activeElement.getAttribute('aria-label')"
    opened.page.keyboard.press("ArrowDown")
    assert opened.page.evaluate(focused).startswith("blocks:")
    opened.page.keyboard.press("ArrowDown")
    first = opened.page.evaluate(focused)
    opened.page.keyboard.press("ArrowRight")
    second = opened.page.evaluate(focused)
    assert first != second
    assert second.split(":")[0] in opened.text("#flame .readout")
    opened.page.keyboard.press("ArrowLeft")
    assert opened.page.evaluate(focused) == first
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate(focused) == first
    assert width(opened, frame(first.split(":")[0])) == pytest.approx(whole, abs=1)
    opened.page.keyboard.press("Escape")
    assert opened.page.evaluate(focused).startswith("blocks:")
    opened.page.keyboard.press("ArrowUp")
    assert opened.page.evaluate(focused).startswith("all tensors:")
    # The whole drawing is one stop of the tabulator.
    assert opened.page.locator("#flame .tile[tabindex='0']").count() == 1
    assert opened.problems == []


def test_lines_stand_under_their_module_and_have_an_arrangement_of_their_own(
    browser: Any, file: Path, estimate: Estimate
) -> None:
    assert estimate.history is not None
    opened = Opened(browser, file, viewport=SCREEN)
    assert opened.page.locator(frame("user/model.py:5")).count() == 1
    opened.page.locator("[data-tree=lines]").press("Enter")
    assert opened.page.get_attribute("[data-tree=modules]", "aria-pressed") == "false"
    lines = line_tree(estimate.history)
    whole = width(opened, "#flame .frames")
    known = next(child for child in lines.children if child.name == "/home/user/model.py")
    assert width(opened, frame("user/model.py")) == pytest.approx(whole * known.total / lines.total, abs=1)
    largest = known.children[0]
    opened.page.locator(frame(f"line {largest.name}")).hover()
    assert f"/home/user/model.py:{largest.name}" in opened.text("#flame .readout")
    assert format_bytes(largest.total) in opened.text("#flame .readout")
    opened.page.click("#flame summary")
    assert f"user/model.py:{largest.name}" in opened.text("#flame table")
    assert "no line known" in opened.text("#flame table")
    assert opened.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, file: Path, scheme: str) -> None:
    phone = {"width": 375, "height": 800}
    opened = Opened(browser, file, viewport=phone, is_mobile=True, has_touch=True, color_scheme=scheme)
    opened.page.tap(frame("blocks"))
    assert "blocks" in opened.text("#flame .readout")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert serious_faults(opened.page) == []
    assert opened.problems == []
