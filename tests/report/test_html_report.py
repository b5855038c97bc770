"""The page without a browser: its numbers are the JSON's, nothing from the job becomes markup, nothing is loaded."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from html.parser import HTMLParser

import pytest
from estimate_builder import estimated, training

from oomcast.estimation import Estimate
from oomcast.report import estimate_as_json, estimate_fragment, estimate_html
from oomcast.report.words import COLOURS, LABELS
from oomcast.trace import Category
from oomcast.units import GiB, MiB, format_bytes

ATTACK = '</script></code><img src=x onerror="window.hacked=1"><!--\'"&'


class Page(HTMLParser):
    """Elements, text, exact sizes and embedded data of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.sizes: list[tuple[int, str]] = []
        self.data: dict[str, str] = {}
        self.words: list[str] = []
        self._open: tuple[str, dict[str, str | None]] = ("", {})
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open = (tag, dict(attrs))
        self.tags.append(self._open)

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open
        if tag == "data":
            self.sizes.append((int(attributes["value"] or ""), data))
        if tag == "script" and attributes.get("type") == "application/json":
            name = attributes["id"] or ""
            self.data[name] = self.data.get(name, "") + data
        elif tag not in ("script", "style"):
            self.words.append(data)
        if tag == "data":
            self._open = ("", {})

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    return estimated(training())


@pytest.fixture(scope="module")
def page(estimate: Estimate) -> Page:
    return Page(estimate_html(estimate))


def test_the_page_carries_the_json_of_the_estimate(page: Page, estimate: Estimate) -> None:
    assert json.loads(page.data["estimate"]) == json.loads(json.dumps(estimate_as_json(estimate)))
    assert "history" not in json.loads(page.data["estimate"])


def test_every_figure_of_the_json_is_on_the_page_to_the_byte(page: Page, estimate: Estimate) -> None:
    shown = {value for value, _ in page.sizes}
    told = estimate_as_json(estimate)
    for name in ("peak_allocated", "peak_reserved", "device_total", "low", "high", "will_not_exceed", "least_capacity"):
        assert told[name] in shown, name
    assert {size for size in told["breakdown"].values() if size} <= shown
    assert {tensor["nbytes"] for tensor in told["top_tensors"]} <= shown
    assert {peak["allocated"] for peak in told["peak_by_phase"]} <= shown


def test_every_size_is_written_as_the_terminal_writes_it(page: Page) -> None:
    assert len(page.sizes) > 20
    for value, words in page.sizes:
        assert words == format_bytes(value)


def test_the_curve_has_the_figures_of_the_peak(page: Page, estimate: Estimate) -> None:
    curve = json.loads(page.data["curve"])
    at = curve["peak"]
    for band in curve["bands"]:
        size = band["bytes"][at] if isinstance(band["bytes"], list) else band["bytes"]
        if band["part"] != "allocator_cache":  # that of the breakdown is of the highest reserved, maybe elsewhere
            assert size == estimate.breakdown[band["part"]]
    tree = json.loads(page.data["tree"])
    assert sum(tree["root"][1]) == estimate.peak_allocated


def test_the_tensors_of_the_page_add_up_to_its_bands() -> None:
    job = training(4, 2)
    job.take(64 * MiB, Category.BUFFER, "large")
    for number in range(300):
        job.take(512 * (1 + number // 100), Category.BUFFER, f"small.{number}")
    curve = json.loads(Page(estimate_html(estimated(job))).data["curve"])
    columns = len(curve["first"])
    found = [[0] * columns for _ in curve["bands"]]
    for place, tensor, kind, *rest in curve["blocks"]:
        if isinstance(rest[1], list):
            count, steps, unit = rest
            assert count > 1 or not kind
            starts, changes = list(itertools.accumulate(steps[::2])), steps[1::2]
            for start, change in zip(starts, changes, strict=True):
                for column in range(start, columns):
                    found[place][column] += change * unit
        else:
            for column in range(rest[0], rest[1] + 1):
                found[place][column] += curve["tensors"][tensor - 1][0]
    together = [kind for _, _, kind, *rest in curve["blocks"] if isinstance(rest[1], list)]
    assert len(together) > 2
    assert together.count(0) == 1
    for band, heights in zip(curve["bands"], found, strict=True):
        if band["largest"]:  # a category of tensors
            bytes_ = band["bytes"] if isinstance(band["bytes"], list) else [band["bytes"]] * columns
            assert heights == bytes_, band["part"]
        else:
            assert not any(heights)


def test_the_verdict_comes_first_in_a_sentence(page: Page, estimate: Estimate) -> None:
    assert "FITS" in page.text
    sentence = f"The job will hold {format_bytes(estimate.device_total)} of the"
    assert page.text.index("FITS") < page.text.index(sentence) < page.text.index("The device")
    for words in ("blocks.0.linear", "zoo:by-hand", "rtx-3090", "torch-2.8-cu128", "interval", "batch size 2"):
        assert words in page.text


def test_nothing_is_loaded_from_anywhere(page: Page, estimate: Estimate) -> None:
    for tag, attributes in page.tags:
        assert "src" not in attributes, tag
        assert tag != "link" or attributes["href"] == "data:,"
    text = estimate_html(estimate)
    assert "url(" not in text
    assert "@import" not in text
    policy = next(a["content"] for t, a in page.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'")


def test_nothing_from_the_job_becomes_markup() -> None:
    job = training(2, name=ATTACK, module=lambda n: f"{ATTACK}.{n}", source=lambda n: f"/home/{ATTACK}/x.py:{n}")
    job.assumptions.append(ATTACK)
    job.unsupported[ATTACK] = 1
    estimate = estimated(job)
    estimate = dataclasses.replace(estimate, provenance={**estimate.provenance, ATTACK: {ATTACK: ATTACK}})
    for text in (estimate_html(estimate), estimate_fragment(estimate)):
        page = Page(text)
        assert not [tag for tag, _ in page.tags if tag == "img"]
        assert ATTACK in page.text
        assert text.count("</script>") == text.count("<script")
        assert not [a for _, attributes in page.tags for a in attributes if a.startswith("on")]
    told = json.loads(Page(estimate_html(estimate)).data["curve"])["strings"]
    assert any(ATTACK in words for words in told)


def test_without_a_history_the_page_goes_without_timeline(estimate: Estimate) -> None:
    page = Page(estimate_html(dataclasses.replace(estimate, history=None)))
    assert "curve" not in page.data
    assert "The job over time" not in page.text
    assert {tensor.nbytes for tensor in estimate.top_tensors} <= {value for value, _ in page.sizes}


def test_an_estimate_without_tensors_is_still_a_page(estimate: Estimate) -> None:
    bare = dataclasses.replace(
        estimate,
        history=None,
        top_tensors=(),
        phase_peaks=(),
        peak_by_module={},
        breakdown={"parameter": estimate.device_total + GiB, "learned": -GiB},
    )
    page = Page(estimate_html(bare))
    assert "Learned residual" in page.text
    assert "-1.00 GiB" in page.text


def test_what_does_not_fit_is_drawn_beyond_the_device() -> None:
    estimate = estimated(training(6, width=GiB), device="rtx-3060")
    page = Page(estimate_html(estimate))
    assert "OOM" in page.text
    assert "too much" in page.text
    assert any("full" in (a.get("class") or "").split() for tag, a in page.tags if tag == "line")


def test_a_notebook_gets_a_piece_without_scripts(estimate: Estimate) -> None:
    text = estimate_fragment(estimate)
    assert "<script" not in text
    assert "<svg" in text
    assert estimate.device_total in {value for value, _ in Page(text).sizes}
    assert estimate._repr_html_() == text


def test_all_categories_have_a_label_and_a_colour_and_no_two_look_alike() -> None:
    assert set(LABELS) == set(COLOURS)
    distinct = sorted(set(COLOURS.values()))
    for first, second in itertools.combinations(distinct, 2):
        for kind, matrix in SIGHT.items():
            assert _difference(first, second, matrix) > 20, (first, second, kind)


# What is seen with each kind of colour blindness, in linear light (Machado, Oliveira and Fernandes, 2009).
SIGHT = {
    "normal": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def _difference(first: str, second: str, matrix: tuple[tuple[float, ...], ...]) -> float:
    """Distance in CIE Lab; about 2 is just noticed."""

    def lab(colour: str) -> tuple[float, float, float]:
        shares = [int(part, 16) / 255 for part in re.findall("..", colour[1:])]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        r, g, b = (min(max(sum(m * c for m, c in zip(row, linear, strict=True)), 0.0), 1.0) for row in matrix)
        xyz = (0.4124 * r + 0.3576 * g + 0.1805 * b, 0.2126 * r + 0.7152 * g + 0.0722 * b)
        x, y, z = xyz[0] / 0.95047, xyz[1], (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
        fx, fy, fz = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in (x, y, z))
        return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)

    return math.dist(lab(first), lab(second))
