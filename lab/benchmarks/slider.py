"""How soon the page of `oomcast serve` answers a moved slider, and how long a capture of the same setting takes.

    python -m lab bench slider [--moves 10]

Both in the same page, one after the other: from the move to the next frame that shows the interpolated answer, and from
the question to the captured one. Where a slider has come to rest, the command line that the page tells is run, and its
JSON compared with the page's. Exit code 1 if a move takes 100 ms or more, a capture less than 20 times as long, or if
any byte differs but for the seconds that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Browser

from ..served import send, serving
from .browser import DESKTOP, PAINTED, chromium
from .report import Bar, Outcome, print_outcome

_JOBS: dict[str, dict[str, Any]] = {
    "ResNet-50": {"job": "zoo:resnet50", "batch_size": 32, "device": "rtx-3090"},
    "GPT-2": {"job": "zoo:gpt2", "batch_size": 4, "seq_len": 256, "device": "rtx-3090"},
    "Llama 2 7B, 8 GPUs": {
        "job": "zoo:llama-2-7b", "batch_size": 1, "seq_len": 1024, "precision": "amp-bf16", "device": "8xa100-80gb",
        "parallel": "fsdp2",
    },
}  # fmt: skip
_MOST_MS, _LEAST_TIMES = 100.0, 20.0
_PATIENCE = 300_000
_SECONDS = re.compile(r'"seconds": [0-9.]+')
_MOVE = f"""async () => {{
  const range = document.getElementById("batch-range"), began = performance.now();
  range.value = Number(range.value) + 1;
  range.dispatchEvent(new Event("input"));
  const kind = document.getElementById("state").dataset.kind, answered = performance.now() - began;
  return [kind, answered, await ({PAINTED})() - began];
}}"""
_AT_REST = """() => [...document.querySelectorAll("#curves figcaption")]
  .every((one) => !one.textContent.includes("comes after the capture"))"""
"""Nothing is captured beside what is measured."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=10, metavar="N", help="of each job's slider (default: 10)")
    moves = parser.parse_args().moves
    rows, slowest, least, different = [], 0.0, float("inf"), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="oomcast-lab-") as folder,
        chromium() as browser,
        serving(Path(folder) / "service.db") as server,
    ):
        for name, settings in _JOBS.items():
            answered, painted, captured, same = _measured(browser, server.port, settings, moves)
            different += [] if same else [name]
            slowest, least = max(slowest, *painted), min(least, statistics.median(captured) / max(painted))
            rows.append((name, *(f"{statistics.median(times):.0f}" for times in (answered, painted, captured)),
                             f"{max(painted):.0f}", f"{statistics.median(captured) / max(painted):.0f}"))  # fmt: skip
    outcome = Outcome(
        f"The page's slider, {moves} moves for each job, ms (medians)",
        ("job", "answered", "to be seen", "a capture", "slowest to be seen", "capture / slowest"),
        rows,
        [
            Bar("every move is seen below 100 ms", f"{slowest:.0f} ms", slowest < _MOST_MS),
            Bar("a capture takes at least 20 times as long", f"{least:.0f} x", least >= _LEAST_TIMES),
            Bar("the page's answer is that of its command line", ", ".join(different) or "to the byte", not different),
        ],
        [f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"],
    )
    print_outcome(outcome)
    return 0 if outcome.holds else 1


def _measured(
    browser: Browser, port: int, settings: dict[str, Any], moves: int
) -> tuple[list[float], list[float], list[float], bool]:
    """ms until the interpolated answer was there, until it was to be seen, and of the captures that confirmed it; and
    whether the last answer is that of the command line."""
    page = browser.new_page(viewport=DESKTOP)
    page.set_default_timeout(_PATIENCE)
    page.goto(f"http://127.0.0.1:{port}/#{quote(json.dumps(settings))}")
    page.wait_for_selector('#state[data-kind="captured"]')
    page.wait_for_function(_AT_REST)
    answered, painted, captured = [], [], []
    for _ in range(moves):
        kind, until_answered, until_painted = page.evaluate(_MOVE)
        page.wait_for_selector('#state[data-kind="captured"]')
        page.wait_for_function(_AT_REST)
        if kind == "interpolated":
            answered.append(until_answered)
            painted.append(until_painted)
            captured.append(float(page.evaluate("() => document.body.dataset.captureMs")))
    link, command = page.get_attribute("#json", "href"), page.inner_text("#command")
    page.close()
    told = send(port, "GET", str(link), None)[1].decode()
    words = [sys.executable, "-m", *shlex.split(command), "--json"]
    printed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return answered, painted, captured, _SECONDS.sub("", told) == _SECONDS.sub("", printed)


if __name__ == "__main__":
    sys.exit(main())
