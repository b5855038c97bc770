"""A real browser for tests: Chromium through playwright, found or skipped.

OOMCAST_CHROMIUM names the program where playwright has not installed its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-features=CDPScreenshotNewSurface"]
PATIENCE = 120_000
"""Milliseconds: test machines may be busy, and nothing here is about speed."""


@contextmanager
def open_browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    program = os.environ.get("OOMCAST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with api.sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS, timeout=PATIENCE)
        except api.Error as error:
            if os.environ.get("OOMCAST_CHROMIUM"):
                raise
            pytest.skip(f"needs a browser: {str(error).splitlines()[0]}")
        yield browser
        browser.close()


def serious_faults(page: Any) -> list[str]:
    """What axe-core finds hard or impossible to use for some readers.

    Its script comes with the test extra (axe-playwright-python); OOMCAST_AXE names another axe.min.js.
    """
    page.evaluate(_axe())
    found: list[str] = page.evaluate(
        """async () => (await axe.run(document, { iframes: false })).violations
          .filter((fault) => ["serious", "critical"].includes(fault.impact))
          .flatMap((fault) => fault.nodes.map((node) => `${fault.id}: ${node.html}`))"""
    )
    return found


def _axe() -> str:
    named = os.environ.get("OOMCAST_AXE")
    if named:
        return Path(named).read_text(encoding="utf-8")
    package = pytest.importorskip("axe_playwright_python", reason="needs axe-core (all before it passed)")
    return (resources.files(package) / "axe.min.js").read_text(encoding="utf-8")


class Opened:
    """A page with what it said and asked for while it was open."""

    def __init__(self, browser: Any, place: Path | str, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.page.set_default_timeout(PATIENCE)
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(place.as_uri() if isinstance(place, Path) else place)

    def text(self, selector: str) -> str:
        text: str = self.page.inner_text(selector)
        return text
