"""Estimate against truth as one SVG file that needs nothing else: a panel for each data set, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from oomcast.errors import BadInput
from oomcast.units import GiB

from .metrics import Judged, score

__all__ = ["plot"]

PANEL, GAP, LEFT, TOP, BOTTOM = 300, 40, 66, 112, 96
COLUMNS = 3
TICKS = (0.25, 0.5, 1, 2, 5, 10, 20, 40, 80, 160)
FINE_TICKS = (0.2, 0.3, 0.4, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 60, 80, 120, 160)
_STYLE = """
  .page { fill: #ffffff } .panel { fill: #f6f7f9 } .grid { stroke: #dfe3e8; stroke-width: 1 }
  .band { fill: #2f6fb2; fill-opacity: 0.10 } .same { stroke: #5b6470; stroke-width: 1.2; stroke-dasharray: 5 4 }
  .in { fill: #2f6fb2; fill-opacity: 0.55 } .out { fill: #d1495b; fill-opacity: 0.75 }
  text { font-family: system-ui, sans-serif; fill: #1f2933; font-size: 12px }
  .title { font-size: 18px; font-weight: 600 } .head { font-size: 13px; font-weight: 600 } .small { fill: #5b6470 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14181d } .panel { fill: #1b2027 } .grid { stroke: #2c343d }
    .band { fill: #6aa9e9; fill-opacity: 0.12 } .same { stroke: #9aa5b1 }
    .in { fill: #6aa9e9; fill-opacity: 0.6 } .out { fill: #ff7b8a; fill-opacity: 0.8 }
    text { fill: #e4e7eb } .small { fill: #9aa5b1 }
  }
"""


@dataclass(frozen=True)
class _Axis:
    """A logarithmic scale, the same for both axes; bytes."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """From 0 to 1 within the axis."""
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self) -> list[float]:
        few = [tick for tick in TICKS if self.low <= tick * GiB <= self.high]
        return few if len(few) > 3 else [tick for tick in FINE_TICKS if self.low <= tick * GiB <= self.high]


def plot(estimator: str, judged: Mapping[str, Sequence[Judged]], bounds: tuple[float, float]) -> str:
    """The SVG, with the interval's bounds as times the estimate; data sets without a measured figure have no panel."""
    panels = {name: [row for row in rows if row.truth] for name, rows in judged.items()}
    panels = {name: rows for name, rows in panels.items() if rows}
    if not panels:
        raise BadInput("a plot needs rows with a measured figure, and there is none.")
    columns = min(COLUMNS, len(panels))
    lines = math.ceil(len(panels) / columns)
    width = LEFT + columns * (PANEL + GAP) - GAP + 24
    height = TOP + lines * (PANEL + BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="Estimate against measured memory">',
        f"<style>{_STYLE}</style>",
        f'<clipPath id="inside"><rect width="{PANEL}" height="{PANEL}"/></clipPath>',
        f'<rect class="page" width="{width}" height="{height}"/>',
        f'<text class="title" x="{LEFT}" y="34">Estimated against measured GPU memory: {escape(estimator)}</text>',
        f'<text class="small" x="{LEFT}" y="55">GiB, logarithmic. Dashed: equal. Band: the interval, '
        f"{bounds[0]:.3g} to {bounds[1]:.3g} times the estimate; red: truths outside of it.</text>",
    ]
    for number, (name, rows) in enumerate(panels.items()):
        x = LEFT + number % columns * (PANEL + GAP)
        y = TOP + number // columns * (PANEL + BOTTOM)
        parts.append(f'<g transform="translate({x} {y})">')
        parts.extend(_panel(name, rows, bounds, labelled=number % columns == 0))
        parts.append("</g>")
    return "\n".join((*parts, "</svg>", ""))


def _panel(name: str, rows: Sequence[Judged], bounds: tuple[float, float], labelled: bool) -> Iterator[str]:
    axis = _axis(rows)
    found = score("", name, rows)
    rows_told = "1 row" if found.rows == 1 else f"{found.rows} rows"
    yield f'<text class="head" x="0" y="-26">{escape(name)}</text>'
    yield (
        f'<text class="small" x="0" y="-9">{rows_told}, error: median {100 * (found.mre or 0):.2g} %, '
        f"p90 {100 * (found.p90 or 0):.2g} %</text>"
    )
    yield f'<rect class="panel" width="{PANEL}" height="{PANEL}"/>'
    for tick in axis.ticks():
        place = axis.at(tick * GiB) * PANEL
        yield f'<path class="grid" d="M{place:.1f} 0V{PANEL}M0 {PANEL - place:.1f}H{PANEL}"/>'
        yield f'<text class="small" x="{place:.1f}" y="{PANEL + 17}" text-anchor="middle">{tick:g}</text>'
        yield f'<text class="small" x="-7" y="{PANEL - place + 4:.1f}" text-anchor="end">{tick:g}</text>'
    yield f'<path class="band" clip-path="url(#inside)" d="{_band(axis, bounds)}"/>'
    yield f'<path class="same" d="M0 {PANEL}L{PANEL} 0"/>'
    for row in sorted(rows, key=lambda row: not _inside(row)):
        yield _point(axis, row)
    yield f'<text x="{PANEL / 2}" y="{PANEL + 36}" text-anchor="middle">measured</text>'
    if labelled:
        middle = PANEL / 2
        yield f'<text x="-44" y="{middle}" text-anchor="middle" transform="rotate(-90 -44 {middle})">estimated</text>'


def _axis(rows: Sequence[Judged]) -> _Axis:
    values = [value for row in rows for value in (row.estimate, row.truth) if value]
    low, high = min(values) / 1.25, max(values) * 1.25
    # A panel of one point, or of equal ones, still shows a range around it.
    spread = max(1.0, 4 * low / high) ** 0.5
    return _Axis(low / spread, high * spread)


def _band(axis: _Axis, bounds: tuple[float, float]) -> str:
    """The estimates that a truth may have: between truth / upper and truth / lower. Straight where both are logs."""
    ends = (axis.low / 2, axis.high * 2)
    above = [(axis.at(truth), axis.at(truth / bounds[0])) for truth in ends]
    below = [(axis.at(truth), axis.at(truth / bounds[1])) for truth in reversed(ends)]
    corners = (f"{x * PANEL:.1f} {PANEL - y * PANEL:.1f}" for x, y in (*above, *below))
    return "M" + "L".join(corners) + "Z"


def _point(axis: _Axis, row: Judged) -> str:
    truth = row.truth or 0
    x, y = axis.at(truth) * PANEL, PANEL - axis.at(row.estimate) * PANEL
    told = f"measured {truth / GiB:.2f} GiB, estimated {row.estimate / GiB:.2f} GiB, {100 * row.error:+.1f} %"
    kind = "in" if _inside(row) else "out"
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{told}</title></circle>'


def _inside(row: Judged) -> bool:
    """A baseline has no interval: nothing is outside of it."""
    if row.low is None or row.high is None or row.truth is None:
        return True
    return row.low <= row.truth <= row.high
