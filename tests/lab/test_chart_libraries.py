"""The bench of chart libraries reads a report's data and hands it to the library that is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import oomcast
from browser import open_browser
from oomcast.report import estimate_html

STAND_IN = """
function uPlot(told, rows, place) {
  const levels = rows.slice(1);
  if (levels.length < 3 || levels.some((row) => row.length !== rows[0].length)) throw new Error("these are no bands");
  const falls = (row, n) => n && row.some((sum, column) => sum < levels[n - 1][column]);
  if (levels.some(falls)) throw new Error("not stacked");
  place.textContent = "drawn";
}
uPlot.paths = { stepped: () => null };
"""


def test_a_library_gets_the_bands_of_the_report(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    with open_browser():
        pass  # skipped where there is none
    page, library = tmp_path / "report.html", tmp_path / "library.js"
    page.write_text(estimate_html(oomcast.estimate("zoo:mlp", batch_size=8, device="t4", steps=1, keep_history=True)))
    library.write_text(STAND_IN)
    words = [str(page), f"uplot={library}", "--times", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "lab", "bench", "chart_libraries", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert any(row[:3] == ["the", "page", "itself"] for row in rows)
    assert any(row[:1] == ["uplot"] and len(row) == 6 for row in rows)
