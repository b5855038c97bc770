"""What a chart library would cost the report's page, beside what the page draws by itself.

    python -m lab bench chart_libraries PAGE.html echarts=FILE.js uplot=FILE.js plotly=FILE.js [--times 5]

PAGE.html is what `oomcast estimate … --html` wrote; the libraries are files of npm's packages echarts, uplot and
plotly.js-basic-dist-min. Each draws, from the data that the page carries, the job over time by category, then tensor by
tensor: a stacked area for each band. Told are the bytes that the library adds to every report, and the milliseconds of
the processor (and of the clock) until each of the two can be seen, for libraries and for the page itself.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from .browser import DESKTOP, PAINTED, chromium
from .report import Outcome, print_outcome

_MOST_BANDS = 900
"""Of those that are drawn tensor by tensor: a library that takes long for these need not be asked for more."""
_BANDS = f"""(curve, byTensor) => {{
  const columns = curve.first.length;
  const level = (bytes) => Array.isArray(bytes) ? bytes : new Array(columns).fill(bytes);
  if (!byTensor) return curve.bands.map((band) => level(band.bytes));
  const single = curve.blocks.filter((block) => !Array.isArray(block[4])).slice(0, {_MOST_BANDS});
  return single.map(([, tensor, , first, last]) => {{
    const drawn = new Array(columns).fill(0);
    return drawn.fill(curve.tensors[tensor - 1][0], first, last + 1);
  }});
}}"""
_DRAWN = {
    "echarts": """(bands) => {
      const chart = echarts.init(document.getElementById("drawn"), null, { width: 1100, height: 400 });
      const area = { type: "line", stack: "all", step: "end", symbol: "none", areaStyle: {}, lineStyle: { width: 0 } };
      const xAxis = { type: "category", data: bands[0].map((_, n) => n) }, tooltip = { trigger: "axis" };
      chart.setOption({ animation: false, xAxis, yAxis: {}, tooltip,
        series: bands.map((data) => ({ ...area, data })) });
    }""",
    "uplot": """(bands) => {
      const sums = [], below = new Float64Array(bands[0].length);
      for (const band of bands) sums.push(Array.from(below, (_, n) => below[n] += band[n]));
      const fill = (n) => `hsl(${n * 37 % 360} 60% 60%)`, paths = uPlot.paths.stepped({ align: 1 });
      const series = [{}, ...sums.map((_, n) => ({ fill: fill(n), paths }))];
      new uPlot({ width: 1100, height: 400, series, scales: { x: { time: false } }, legend: { show: false } },
        [bands[0].map((_, n) => n), ...sums], document.getElementById("drawn"));
    }""",
    "plotly": """(bands) => {
      const area = { stackgroup: "all", mode: "none", line: { shape: "hv" } };
      return Plotly.newPlot("drawn", bands.map((y) => ({ y, ...area })), { width: 1100, height: 400 });
    }""",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("libraries", nargs="*", metavar="NAME=FILE")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    text = options.page.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="curve">(.*?)</script>', text, re.DOTALL)
    if found is None:
        parser.error(f"{options.page} has no timeline.")
    rows = []
    with chromium() as browser:
        own = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)[0]
        rows.append(
            ("the page itself", f"{len(own) / 1000:.0f}", *_told(browser, options.times, _of_the_page(options.page)))
        )
        for named in options.libraries:
            name, _, file = named.partition("=")
            if name not in _DRAWN:
                parser.error(f"{name} is none of {', '.join(_DRAWN)}.")
            script = Path(file).read_text(encoding="utf-8")
            measure = _of_a_library(script, found[1], _DRAWN[name])
            rows.append((name, f"{len(script) / 1000:.0f}", *_told(browser, options.times, measure)))
    columns = ("drawn by", "script, kB", "categories: processor", "clock", "tensors: processor", "clock")
    notes = [
        f"ms, medians of {options.times}; libraries draw up to {_MOST_BANDS} tensors and nothing else, the page all of "
        "them, and at its opening all other charts and tables of the report"
    ]
    print_outcome(Outcome("What a chart library would cost a report", columns, rows, (), notes))


def _told(browser: Browser, times: int, measure: Callable[[Page], list[tuple[float, float]]]) -> list[str]:
    """Medians of processor and clock, of categories and of tensors."""
    measured = []
    for _ in range(times):
        page = browser.new_page(viewport=DESKTOP)
        page.set_default_timeout(120_000)
        measured.append([figure for pair in measure(page) for figure in pair])
        page.close()
    return [f"{statistics.median(figures):.0f}" for figures in zip(*measured, strict=True)]


def _timed(page: Page, act: Callable[[], Any]) -> tuple[float, float]:
    """ms of the page's own thread and of the clock, until what was done can be seen."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        told = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(told["TaskDuration"])

    before, began = spent(), page.evaluate("() => performance.now()")
    act()
    ended = page.evaluate(PAINTED)
    return spent() - before, float(ended) - float(began)


def _of_the_page(file: Path) -> Callable[[Page], list[tuple[float, float]]]:
    def measure(page: Page) -> list[tuple[float, float]]:
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.goto(file.resolve().as_uri())
        clock = float(page.evaluate(PAINTED))
        told = {entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]}
        pressed = "() => document.querySelector('[data-view=tensors]').click()"
        return [(1000 * float(told["TaskDuration"]), clock), _timed(page, lambda: page.evaluate(pressed))]

    return measure


def _of_a_library(script: str, curve: str, draw: str) -> Callable[[Page], list[tuple[float, float]]]:
    def measure(page: Page) -> list[tuple[float, float]]:
        page.set_content('<!doctype html><div id="drawn"></div>')
        page.evaluate("(text) => { window.curve = JSON.parse(text) }", curve)
        found = []
        for by_tensor in (False, True):
            page.evaluate(f"(byTensor) => {{ window.bands = ({_BANDS})(curve, byTensor) }}", by_tensor)
            page.evaluate(
                '() => { const old = document.getElementById("drawn"); old.replaceWith(old.cloneNode(false)) }'
            )

            def act(by_tensor: bool = by_tensor) -> None:
                if not by_tensor:
                    page.add_script_tag(content=script)  # what opening a report would load as well
                page.evaluate(f"async () => {{ await ({draw})(bands) }}")

            found.append(_timed(page, act))
        return found

    return measure


if __name__ == "__main__":
    main()
