"""`python -m lab pictures`: the pictures of pages in the documentation, taken again from what the pages are now.

A picture follows from its job and its settings alone, so that anyone can tell whether it is still true. Needs
playwright, Chromium and Pillow.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser, FloatRect, Page, ViewportSize

import oomcast
from oomcast.errors import UnknownName
from oomcast.report import estimate_html

from .benchmarks.browser import chromium
from .served import serving

__all__ = ["PICTURES", "add_to"]

_FOLDER = Path("docs/images")
_PATIENCE = 300_000
_LLAMA = {"job": "zoo:llama-2-7b", "batch_size": 1, "seq_len": 2048, "precision": "bf16", "device": "h100-80gb"}
_RESNET = {"job": "zoo:resnet50", "batch_size": 64, "device": "rtx-3090"}
_TUNED = {
    "job": "hf:Qwen/Qwen2.5-0.5B",
    "batch_size": 4,
    "seq_len": 1024,
    "precision": "amp-bf16",
    "adapter": {"kind": "lora", "r": 16, "target_modules": "all-linear"},
    "device": "rtx-3090",
}


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("pictures", help="take the documentation's pictures again")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of these (default: all): {', '.join(PICTURES)}")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help=f"default: {_FOLDER}")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name in options.names:
        if name not in PICTURES:
            raise UnknownName("picture", name, PICTURES)
    with chromium() as browser:
        for name in options.names or PICTURES:
            file = options.folder / f"{name}.png"
            file.write_bytes(_small(PICTURES[name](browser)))
            print(f"{file}: {file.stat().st_size / 1000:.0f} kB")
    return 0


def _small(png: bytes) -> bytes:
    """The same picture in fewer bytes: no colour moves by more than can be told apart, however small its area."""
    from PIL import Image  # with the test extra

    packed = io.BytesIO()
    every = Image.Quantize.MAXCOVERAGE
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, every, dither=Image.Dither.NONE).save(packed, "PNG")
    return packed.getvalue()


def _report_of(browser: Browser, asked: Mapping[str, Any], size: ViewportSize, **context: Any) -> Page:
    options = {name: value for name, value in asked.items() if name != "job"}
    page = browser.new_context(viewport=size, **context).new_page()
    with tempfile.TemporaryDirectory(prefix="oomcast-lab-") as folder:
        file = Path(folder) / "report.html"
        file.write_text(estimate_html(oomcast.estimate(asked["job"], keep_history=True, **options)), encoding="utf-8")
        page.goto(file.as_uri())
        page.wait_for_timeout(1000)
    return page


def _part(page: Page, first: str, last: str, margin: int = 8) -> bytes:
    """From the top of one element to the end of another."""
    top, bottom = page.locator(first).bounding_box(), page.locator(last).bounding_box()
    assert top is not None
    assert bottom is not None
    y, x = max(top["y"] - margin, 0), max(top["x"] - margin, 0)
    height = bottom["y"] + bottom["height"] + margin - y
    return page.screenshot(full_page=True, clip=FloatRect(x=x, y=y, width=top["width"] + 2 * margin, height=height))


def _report(browser: Browser) -> bytes:
    page = _report_of(browser, _LLAMA, {"width": 1120, "height": 1800})
    return _part(page, "main", "#readout")


def _tensors(browser: Browser) -> bytes:
    page = _report_of(browser, _RESNET, {"width": 1000, "height": 2400})
    page.click("[data-view=tensors]")
    box = page.locator("#timeline .canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.15 * box["width"], box["y"] + 0.6 * box["height"])
    page.wait_for_timeout(500)
    page.locator("#readout").evaluate(
        "(told) => { for (const more of [...told.children].slice(2)) more.hidden = true }"
    )
    return _part(page, "#timeline", "#readout")


def _modules(browser: Browser) -> bytes:
    page = _report_of(browser, _RESNET, {"width": 1000, "height": 2400})
    return _part(page, "#modules", "#modules .map")


def _flame(browser: Browser) -> bytes:
    page = _report_of(browser, _RESNET, {"width": 1000, "height": 2400})
    return page.locator("#flame").screenshot()


def _phone(browser: Browser) -> bytes:
    page = _report_of(browser, _RESNET, {"width": 390, "height": 844}, color_scheme="dark", is_mobile=True)
    page.locator("#timeline").evaluate("(timeline) => timeline.scrollIntoView()")
    page.wait_for_timeout(300)
    return page.screenshot()


def _service(browser: Browser) -> bytes:
    with tempfile.TemporaryDirectory(prefix="oomcast-lab-") as folder, serving(Path(folder) / "service.db") as server:
        page = browser.new_page(viewport={"width": 1200, "height": 1480})
        page.set_default_timeout(_PATIENCE)
        page.goto(f"http://127.0.0.1:{server.port}/#{quote(json.dumps(_TUNED))}")
        page.wait_for_selector("#rank-chart svg")
        page.wait_for_selector('#state[data-kind="captured"]')
        return page.screenshot()


PICTURES: Mapping[str, Callable[[Browser], bytes]] = {
    "report": _report,
    "report-tensors": _tensors,
    "report-modules": _modules,
    "report-flame": _flame,
    "report-phone": _phone,
    "service": _service,
}
"""What is in docs/images, by name."""
