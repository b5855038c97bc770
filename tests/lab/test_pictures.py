"""The documentation's pictures: each that a page shows is one that can be taken again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_picture_of_a_page_can_be_taken_again() -> None:
    pytest.importorskip("playwright")
    from lab.pictures import PICTURES

    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    shown = {name for page in pages for name in re.findall(r"images/([\w-]+)\.png", page.read_text(encoding="utf-8"))}
    assert shown == set(PICTURES)


def test_a_picture_shows_the_page(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("playwright")
    from browser import open_browser

    with open_browser():
        pass  # skipped where there is none
    command = [sys.executable, "-m", "lab", "pictures", "report-modules", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folders = (tmp_path, ROOT / "docs" / "images")
    with image.open(folders[0] / "report-modules.png") as taken, image.open(folders[1] / "report-modules.png") as kept:
        assert taken.width == kept.width
        assert len(taken.convert("RGB").getcolors(1 << 24)) > 10
