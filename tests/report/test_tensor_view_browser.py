"""The job tensor by tensor in a real browser: by pointer and by keyboard, grouped, filtered by the legend."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from estimate_builder import Job, estimated, training
from seen import colours_of

from browser import Opened, serious_faults
from oomcast.estimation import Estimate
from oomcast.report import estimate_html
from oomcast.report.curve import bands_of, curve_of
from oomcast.report.page_timeline import chart_top
from oomcast.report.tensor_bands import Life, tensor_bands
from oomcast.report.words import COLOURS
from oomcast.trace import Category, Phase
from oomcast.units import GiB, KiB, MiB, format_bytes

SCREEN = {"width": 1200, "height": 900}
INK = "#1b232c"


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return estimated(training(6, 3, width=40 * MiB))


@pytest.fixture(scope="module")
def file(estimate: Estimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(estimate, tmp_path_factory.mktemp("tensors"))


def written(estimate: Estimate, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(estimate_html(estimate), encoding="utf-8")
    return path


def live_at_peak(estimate: Estimate) -> list[Life]:
    """From the floor up."""
    assert estimate.history is not None
    curve = curve_of(estimate.history)
    bands = tensor_bands(estimate.history, curve).bottom_up
    return [life for band in bands for life in band.lives if life.first <= curve.peak <= life.last]


def test_pointing_at_a_band_tells_the_life_of_its_tensor(browser: Any, file: Path, estimate: Estimate) -> None:
    history = estimate.history
    assert history is not None
    curve = curve_of(history)
    live = live_at_peak(estimate)
    wanted = max(live, key=lambda life: life.action.size)
    under = estimate.breakdown["context"] + sum(life.action.size for life in live[: live.index(wanted)])
    height = (under + wanted.action.size / 2) / chart_top(estimate, bands_of(estimate, curve))
    made = history.trace.allocations[wanted.action.allocation or 0]

    opened = Opened(browser, file, viewport=SCREEN)
    assert opened.page.locator(".life").count() == 0
    opened.page.click("[data-view=tensors]")
    before = colours_of(opened, "#timeline .canvas")
    box = opened.page.locator("#timeline svg").bounding_box()
    place = {"x": box["width"] * (curve.peak + 0.5) / curve.end, "y": box["height"] * (1 - height)}
    opened.page.hover("#timeline svg", position=place)
    told = opened.text(".life")
    stretch = {
        event: next(f"{s.phase} of step {s.step + 1}" for s in curve.stretches if s.first <= event < s.end)
        for event in (wanted.born, wanted.died or 0)
    }
    for words in (
        format_bytes(wanted.action.size),
        f"{made.shape[0]} float32",
        made.module,
        "user/model.py:",
        f"taken in {stretch[wanted.born]}, event {wanted.born}",
        f"given back in {stretch[wanted.died or 0]}, event {wanted.died}",
    ):
        assert words in told
    # The band is marked from its birth to its end.
    pixels = wanted.action.size / chart_top(estimate, bands_of(estimate, curve)) * box["height"]
    length = ((wanted.died or 0) - wanted.born) / curve.end * box["width"]
    assert colours_of(opened, "#timeline .canvas")[INK] - before[INK] > 0.8 * pixels * length
    opened.page.hover("#timeline svg", position={"x": 5, "y": 5})
    assert opened.page.locator(".life").count() == 0
    assert opened.problems == []


def test_the_keyboard_goes_from_tensor_to_tensor_and_through_time(browser: Any, file: Path, estimate: Estimate) -> None:
    opened = Opened(browser, file, viewport=SCREEN)
    svg = opened.page.locator("#timeline svg")
    svg.press("ArrowUp")
    assert opened.page.locator(".life").count() == 0  # categories have no tensors to go to
    opened.page.locator("[data-view=tensors]").press("Enter")
    assert opened.page.get_attribute("[data-view=tensors]", "aria-pressed") == "true"
    live = live_at_peak(estimate)
    for life in live:
        svg.press("ArrowUp")
        assert format_bytes(life.action.size) in opened.text(".life")
        assert f"event {life.born}" in opened.text(".life")
    last = opened.text(".life")
    svg.press("ArrowUp")
    assert opened.text(".life") == last
    svg.press("ArrowDown")
    assert f"event {live[-2].born}" in opened.text(".life")
    svg.press("ArrowRight")
    assert f"event {live[-2].born}" in opened.text(".life")  # still there at the next event
    opened.page.click("button:text-is('Step 1')")
    for _ in range(3):
        svg.press("PageUp")
    assert opened.page.locator(".life").count() == 0
    assert opened.problems == []


def test_neighbours_differ_in_shade_and_equal_tensors_lie_together(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport=SCREEN)
    opened.page.click("[data-view=tensors]")
    seen = colours_of(opened, "#timeline .canvas")
    assert seen[COLOURS["activation"]] > 500
    shades = [c for c, n in seen.items() if n > 500 and c[1:3] != c[5:7] and int(c[3:5], 16) > 200 > int(c[1:3], 16)]
    assert len(shades) >= 3
    opened.page.click("[data-view=kinds]")
    svg = opened.page.locator("#timeline svg")
    svg.press("ArrowUp")
    assert f"6 equal tensors, together {format_bytes(240 * MiB)}, of 6 in the whole run" in opened.text(".life")
    assert "40.0 MiB" in opened.text(".life")
    opened.page.click("[data-view=parts]")
    assert opened.page.locator(".life").count() == 0
    assert opened.problems == []


def test_small_tensors_lie_together_and_the_page_says_so(browser: Any, tmp_path: Path) -> None:
    job = Job()
    job.enter(Phase.BUILD, -1)
    job.take(64 * MiB, Category.PARAMETER, "head.weight")
    for number in range(3000):
        job.take(4 * KiB, Category.PARAMETER, f"blocks.{number}.bias")
    for number in range(5):
        job.take((number + 1) * 512, Category.PARAMETER, f"odd.{number}")
    small = estimated(job)
    opened = Opened(browser, written(small, tmp_path), viewport=SCREEN)
    assert "3,005 small ones lie together: equal ones in 1 band, the rest by category" in opened.text(".grouping")
    assert f"below {format_bytes(math.ceil(small.breakdown['parameter'] / 1000))} (Parameter)" in opened.text(
        ".grouping"
    )
    opened.page.click("[data-view=tensors]")
    svg = opened.page.locator("#timeline svg")
    told = []
    for _ in range(3):
        svg.press("ArrowDown")
        told.append(opened.text(".life"))
    assert "small tensors of many kinds" in told[0]
    assert "5 in the whole run" in told[0]
    assert "3,000 equal tensors, together 11.7 MiB" in told[1]
    assert "head.weight" in told[2]
    assert "held to the end" in told[2]
    assert opened.problems == []


def test_the_legend_hides_and_shows_categories(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport=SCREEN)
    chart, entry = "#timeline .canvas", "[data-part=activation]"
    whole = colours_of(opened, chart)
    opened.page.click(entry)
    assert opened.page.get_attribute(entry, "aria-pressed") == "false"
    without = colours_of(opened, chart)
    assert whole[COLOURS["activation"]] > 1000 > 10 > without[COLOURS["activation"]]
    assert without[COLOURS["gradient"]] > 0.9 * whole[COLOURS["gradient"]]
    # What lay above has come down, and paper is where it was.
    assert without["#ffffff"] > whole["#ffffff"] + 0.9 * whole[COLOURS["activation"]]
    assert "Not shown: Activation." in opened.text("#readout")
    assert "Activation" not in opened.text("#readout table")
    opened.page.click("[data-view=tensors]")
    assert colours_of(opened, chart)[COLOURS["activation"]] < 10
    opened.page.click("[data-view=parts]")
    opened.page.click(entry)
    assert opened.page.get_attribute(entry, "aria-pressed") == "true"
    assert colours_of(opened, chart)[COLOURS["activation"]] == whole[COLOURS["activation"]]
    assert opened.problems == []


def test_one_category_alone_fills_the_chart_by_keyboard_too(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, written(estimated(training(6, width=GiB), device="rtx-3090"), tmp_path), viewport=SCREEN)
    axis, chart = "#timeline .yaxis", "#timeline .canvas"
    before, whole = opened.text(axis), colours_of(opened, chart)
    assert opened.page.is_visible(".fullwords")
    assert not opened.page.is_visible("[data-all]")
    opened.page.locator("[data-part=parameter]").press("Shift+Enter")
    alone = colours_of(opened, chart)
    assert alone[COLOURS["parameter"]] > 2 * whole[COLOURS["parameter"]]
    assert alone[COLOURS["context"]] == alone[COLOURS["gradient"]] == 0
    assert "6 GiB" in opened.text(axis).split("\n")
    assert opened.text(axis) != before
    assert not opened.page.is_visible(".fullwords")
    assert opened.page.locator("#readout tr").count() == 1
    opened.page.locator("[data-all]").press("Enter")
    assert opened.text(axis) == before
    assert colours_of(opened, chart)[COLOURS["parameter"]] == whole[COLOURS["parameter"]]
    assert opened.problems == []


def test_a_closer_look_and_another_theme_are_drawn_anew(browser: Any, file: Path) -> None:
    opened = Opened(browser, file, viewport=SCREEN, color_scheme="light")
    chart = "#timeline .canvas"
    opened.page.click("[data-view=tensors]")
    whole = colours_of(opened, chart)
    opened.page.click("button:text-is('Around the peak')")
    assert colours_of(opened, chart)[COLOURS["activation"]] > 1.3 * whole[COLOURS["activation"]]
    opened.page.emulate_media(color_scheme="dark")
    dark = colours_of(opened, chart)
    assert whole[COLOURS["allocator_cache"]] > 100 > dark[COLOURS["allocator_cache"]]
    assert dark["#30383d"] > 100
    assert opened.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(browser: Any, file: Path, scheme: str) -> None:
    phone = {"width": 375, "height": 800}
    opened = Opened(browser, file, viewport=phone, is_mobile=True, has_touch=True, color_scheme=scheme)
    opened.page.tap("[data-view=tensors]")
    opened.page.tap("[data-part=allocator_cache]")
    box = opened.page.locator("#timeline svg").bounding_box()
    opened.page.tap("#timeline svg", position={"x": box["width"] / 2, "y": box["height"] * 0.75})
    assert "taken in" in opened.text(".life")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 375
    assert colours_of(opened, "#timeline .canvas")[COLOURS["activation"]] > 100
    assert serious_faults(opened.page) == []
    assert opened.problems == []
    assert opened.requests == [file.as_uri()]
