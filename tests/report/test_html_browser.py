"""The page in a real browser: drawn, silent, alone, and it answers to pointer and keyboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from estimate_builder import estimated, training
from seen import colours_of

from browser import Opened, serious_faults
from oomcast.estimation import Estimate
from oomcast.report import estimate_fragment, estimate_html
from oomcast.report.words import COLOURS
from oomcast.units import MiB, format_bytes

ATTACK = '</script><img src=x onerror="window.hacked=1"><b>\''


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return estimated(training(6, 3, width=40 * MiB))


@pytest.fixture(scope="module")
def file(estimate: Estimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(estimate_html(estimate), encoding="utf-8")
    return path


def test_the_charts_are_drawn_in_the_colours_of_the_categories(browser: Any, file: Path, estimate: Estimate) -> None:
    opened = Opened(browser, file, viewport={"width": 1200, "height": 900})
    timeline = colours_of(opened, "#timeline .canvas")
    total = timeline.total()
    for part in ("parameter", "activation", "gradient", "optimizer_state", "temporary"):
        assert timeline[COLOURS[part]] > total / 400, part
    assert timeline["#ffffff"] < total * 0.8
    tiles = colours_of(opened, "#modules .map")
    assert tiles[COLOURS["parameter"]] > tiles.total() / 50
    gauge = colours_of(opened, ".gauge")
    assert gauge[COLOURS["parameter"]] > 20
    assert opened.problems == []
    assert opened.requests == [file.as_uri()]
    for words in ("FITS", format_bytes(estimate.device_total), "blocks.0.linear", "torch-2.8-cu128"):
        assert words in opened.text("main")


def test_pointing_shows_tensor_and_line(browser: Any, file: Path, estimate: Estimate) -> None:
    opened = Opened(browser, file, viewport={"width": 1200, "height": 900})
    assert "the peak of allocated bytes" in opened.text("#readout")
    assert format_bytes(estimate.breakdown["parameter"]) in opened.text("#readout")
    opened.page.click("button:text-is('Around the peak')")
    opened.page.hover("#timeline svg", position={"x": 5, "y": 100})
    early = opened.text("#readout")
    opened.page.click("button:text-is('Step 2')")
    box = opened.page.locator("#timeline svg").bounding_box()
    opened.page.hover("#timeline svg", position={"x": box["width"] * 0.25, "y": 100})
    assert opened.text("#readout") != early
    assert "of step 2" in opened.text("#readout")
    assert "user/model.py:" in opened.text("#readout")
    assert "aten.mm" in opened.text("#readout")
    assert opened.problems == []


def test_the_view_follows_buttons_keys_and_dragging(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport={"width": 1200, "height": 900})
    svg = opened.page.locator("#timeline svg")

    def window() -> tuple[float, float]:
        left, _, width, _ = map(float, svg.get_attribute("viewBox").split())
        return left, left + width

    whole = window()
    opened.page.click("button:text-is('Step 2')")
    second = window()
    assert whole[0] < second[0] < second[1] < whole[1]
    opened.page.click("[data-zoom=in]")
    assert window()[1] - window()[0] < second[1] - second[0]
    opened.page.click("button:text-is('Whole run')")
    assert window() == whole
    svg.scroll_into_view_if_needed()
    box = svg.bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 50)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=3)
    opened.page.mouse.up()
    assert window()[0] == pytest.approx(whole[1] * 0.3, abs=2)
    assert window()[1] == pytest.approx(whole[1] * 0.6, abs=2)
    svg.focus()
    before = opened.text("#readout")
    opened.page.keyboard.press("ArrowRight")
    assert opened.text("#readout") != before
    assert opened.problems == []


def test_what_is_told_lies_in_the_window_and_begins_with_what_is_in_use(
    browser: Any, file: Path, estimate: Estimate
) -> None:
    opened = Opened(browser, file, viewport={"width": 1200, "height": 900})
    head = "#readout h3"
    in_use = f"{format_bytes(estimate.peak_allocated)} in use, {format_bytes(estimate.device_total)} held on the device"
    assert in_use in opened.text(head)
    opened.page.hover("#timeline svg", position={"x": 2, "y": 100})
    assert in_use not in opened.text(head)
    opened.page.click("button:text-is('Around the peak')")
    assert in_use in opened.text(head)
    opened.page.hover("#timeline svg", position={"x": 2, "y": 100})
    opened.page.click("button:text-is('Step 3')")
    assert "of step 3" in opened.text(head)
    opened.page.click("[data-zoom=left]")
    opened.page.click("button:text-is('Step 1')")
    assert "of step 1" in opened.text(head)


def test_the_interval_of_a_small_job_can_be_seen(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "small.html"
    path.write_text(estimate_html(estimated(training(2, width=MiB), device="a100-80gb")), encoding="utf-8")
    opened = Opened(browser, path, viewport={"width": 375, "height": 800})
    assert opened.page.locator(".whisker").bounding_box()["width"] >= 10


@pytest.mark.parametrize(
    ("theme", "is_dark"),
    [
        ('body data-jp-theme-light="false"', True),
        ('body data-jp-theme-light="true"', False),
        ('body class="vscode-dark"', True),
    ],
)
def test_in_a_notebook_it_is_as_dark_as_the_notebook(
    browser: Any, tmp_path: Path, estimate: Estimate, theme: str, is_dark: bool
) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<!doctype html><html><{theme}>{estimate_fragment(estimate)}</body></html>", encoding="utf-8")
    # The system says otherwise than the notebook.
    opened = Opened(browser, path, color_scheme="light" if is_dark else "dark")
    paper = colours_of(opened, ".fragment header").most_common(1)[0][0]
    assert (int(paper[1:3], 16) < 64) == is_dark


def test_modules_open_and_close_and_columns_sort(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport={"width": 1200, "height": 900})
    assert "whole job" in opened.text("#modules .path")
    opened.page.locator("#modules button.tile").first.click()
    assert "blocks" in opened.text("#modules .path")
    opened.page.click("#modules .path button")
    assert "blocks" not in opened.text("#modules .path")
    read = "rows => rows.map(row => Number(row.querySelector('data').value))"
    rows = "table.tensors tbody tr"
    sizes = opened.page.eval_on_selector_all(rows, read)
    assert sizes == sorted(sizes, reverse=True)
    opened.page.click("table.tensors th >> text=Memory")
    opened.page.click("table.tensors th >> text=Memory")
    assert opened.page.eval_on_selector_all(rows, read) == sorted(sizes)
    assert opened.page.get_attribute("table.tensors th >> nth=0", "aria-sort") == "ascending"
    assert opened.problems == []


def test_sizes_read_the_same_as_on_the_command_line(browser: Any, file: Path) -> None:
    opened = Opened(browser, file)
    read = "all => all.map(one => [Number(one.value), one.textContent])"
    shown = opened.page.eval_on_selector_all("#readout data, .breakdown data", read)
    assert len(shown) > 10
    assert all(words == format_bytes(value) for value, words in shown)


def test_what_is_hard_to_use_would_be_found(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "nameless.html").write_text("<!doctype html><title>t</title><button></button>", encoding="utf-8")
    found = serious_faults(Opened(browser, tmp_path / "nameless.html").page)
    assert any(fault.startswith("button-name") for fault in found)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_light_and_dark(browser: Any, file: Path, scheme: str) -> None:
    opened = Opened(browser, file, viewport={"width": 375, "height": 800}, is_mobile=True, color_scheme=scheme)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 375
    paper = colours_of(opened, "header").most_common(1)[0][0]
    assert (int(paper[1:3], 16) < 64) == (scheme == "dark")
    drawn = colours_of(opened, "#timeline .canvas")
    assert drawn[COLOURS["activation"]] > drawn.total() / 400
    assert serious_faults(opened.page) == []
    # A table that is wider than the screen is scrolled, and not the page.
    wide = opened.page.locator(".scroll:has(table.tensors)")
    assert wide.evaluate("box => { box.scrollLeft = 200; return box.scrollLeft }") == 200
    assert opened.page.evaluate("scrollX") == 0
    assert opened.problems == []


def test_it_prints(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, color_scheme="dark")
    assert opened.page.pdf(format="A4").startswith(b"%PDF-")
    opened.page.emulate_media(media="print")
    assert colours_of(opened, "header").most_common(1)[0][0] == "#ffffff"
    assert not opened.page.is_visible("#timeline .controls")


def test_hostile_names_stay_text(browser: Any, tmp_path: Path) -> None:
    job = training(2, name=ATTACK, module=lambda n: f"{ATTACK}.{n}", source=lambda n: f"/home/{ATTACK}/x.py:{n}")
    job.assumptions.append(ATTACK)
    estimate = estimated(job)
    for number, text in enumerate((estimate_html(estimate), estimate_fragment(estimate))):
        path = tmp_path / f"{number}.html"
        path.write_text(text, encoding="utf-8")
        opened = Opened(browser, path)
        assert opened.page.evaluate("window.hacked") is None
        assert opened.page.locator("img").count() == 0
        assert ATTACK in opened.text("h1")
        assert opened.problems == []
        assert opened.requests == [path.as_uri()]
        if number == 0:
            assert ATTACK in opened.text("#readout")
            for _ in range(3):
                opened.page.keyboard.press("Tab")
            opened.page.locator("#modules .tile").first.hover()
            opened.page.click("[data-view=tensors]")
            opened.page.locator("#timeline svg").press("ArrowUp")
            assert ATTACK in opened.text(".life")
            opened.page.locator('#flame .tile[aria-label*="onerror"]').first.hover()
            assert ATTACK[:30] in opened.text("#flame .readout")
            assert opened.page.evaluate("window.hacked") is None
