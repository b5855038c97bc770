"""What is seen of a page, as pixels."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from browser import Opened


def colours_of(opened: Opened, selector: str) -> Counter[str]:
    """Pixels by colour of one element as it is seen."""
    image = pytest.importorskip("PIL.Image")
    seen = image.open(io.BytesIO(opened.page.locator(selector).first.screenshot())).convert("RGB")
    colours = seen.getcolors(maxcolors=1 << 24)
    return Counter({"#{:02x}{:02x}{:02x}".format(*colour): count for count, colour in colours})
