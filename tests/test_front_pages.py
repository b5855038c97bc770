"""README and the site's front page: the same commands with the same answers, and the same comparison."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import oomcast
from oomcast.units import format_bytes

ROOT = Path(__file__).resolve().parents[1]
PAGES = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/index.md")]


def first(pattern: str, page: str) -> str:
    found = re.search(pattern, page, re.DOTALL | re.MULTILINE)
    assert found is not None, pattern
    return found[0]


@pytest.mark.parametrize("pattern", [r"^```console.*?^```", r"^\| \| oomcast \|.*?^$"])
def test_both_say_the_same(pattern: str) -> None:
    assert first(pattern, PAGES[0]) == first(pattern, PAGES[1])


def test_the_answer_that_they_show_is_the_answer() -> None:
    answer = oomcast.estimate("zoo:resnet50", batch_size=64, device="rtx-3090")
    shown = first(r"^FITS  zoo:resnet50 .*?$", PAGES[0])
    for size in (answer.device_total, answer.low, answer.high):
        assert format_bytes(size) in shown
