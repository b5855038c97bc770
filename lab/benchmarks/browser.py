"""A real browser for what is measured in pages: the program OOMCAST_CHROMIUM names, the system's, or playwright's."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, ViewportSize, sync_playwright

__all__ = ["DESKTOP", "PAINTED", "chromium"]

DESKTOP = ViewportSize(width=1280, height=900)
PAINTED = "() => new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"
"""When what was last changed can be seen."""


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        program = os.environ.get("OOMCAST_CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
