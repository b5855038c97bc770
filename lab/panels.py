"""Panels side by side as one SVG text, both axes logarithmic, with one scale for all: curves, and dots beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from oomcast.report.charts import STYLE

__all__ = ["Curve", "Panel", "panels"]

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _BETWEEN = 330, 250, 58, 62, 58, 26
_MARGIN = 0.04
_COLOURS = "abcdef"
_MORE = """
  .e { fill: #b8324a; stroke: #b8324a } .f { fill: #1f8a8a; stroke: #1f8a8a } .panel { fill: none; stroke: #c4cbd4 }
  polyline.line { fill: none } circle.dot { stroke: none }
  @media (prefers-color-scheme: dark) {
    .e { fill: #f27d92; stroke: #f27d92 } .f { fill: #5fc9c9; stroke: #5fc9c9 } .panel { stroke: #3c4650 }
  }
"""


@dataclass(frozen=True)
class Curve:
    """What is drawn in one colour; a curve of the same name has the same colour in every panel."""

    name: str
    line: Sequence[tuple[float, float]] = ()
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Panel:
    title: str
    curves: Sequence[Curve]


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _Scale:
        if not values or min(values) <= 0:
            raise ValueError("a logarithmic axis needs positive values")
        low, high = math.log(min(values)), math.log(max(values))
        margin = max((high - low) * _MARGIN, 0.02)
        return cls(low - margin, high + margin)

    def at(self, value: float) -> float:
        return (math.log(value) - self.low) / (self.high - self.low)


def panels(title: str, shown: Sequence[Panel], *, x: str, y: str, x_ticks: Sequence[float], note: str = "") -> str:
    """`x_ticks` are values to mark below, those that are within; the other axis has 1, 2, 5 times powers of ten."""
    points = [point for panel in shown for curve in panel.curves for point in (*curve.line, *curve.dots)]
    across, up = _Scale.of([point[0] for point in points]), _Scale.of([point[1] for point in points])
    within = [tick for tick in x_ticks if 0 <= across.at(tick) <= 1]
    names = list(dict.fromkeys(curve.name for panel in shown for curve in panel.curves))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    width = _LEFT + len(shown) * (_WIDTH + _BETWEEN) - _BETWEEN + 16
    height = _TOP + _HEIGHT + _BOTTOM
    parts = [
        f'<text class="head" x="12" y="20">{escape(title)}</text>',
        f'<text class="small" x="12" y="38">{escape(y)}{escape("; " + note if note else "")}</text>',
    ]
    for number, panel in enumerate(shown):
        parts += _panel(panel, _LEFT + number * (_WIDTH + _BETWEEN), across, up, within, colours, first=not number)
    parts += _legend(colours, x, width, height)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}{_MORE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *parts,
            "</svg>",
        ]
    )


def _panel(
    panel: Panel,
    left: float,
    across: _Scale,
    up: _Scale,
    x_ticks: Sequence[float],
    colours: dict[str, str],
    first: bool,
) -> Iterable[str]:
    def place(point: tuple[float, float]) -> tuple[float, float]:
        return left + across.at(point[0]) * _WIDTH, _TOP + (1 - up.at(point[1])) * _HEIGHT

    yield f'<text x="{left}" y="{_TOP - 6}">{escape(panel.title)}</text>'
    for tick in _ticks(up):
        y = _TOP + (1 - up.at(tick)) * _HEIGHT
        yield f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{left + _WIDTH}" y2="{y:.1f}"/>'
        if first:
            yield f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for tick in x_ticks:
        x = left + across.at(tick) * _WIDTH
        yield f'<line class="grid" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{_TOP + _HEIGHT}"/>'
        yield f'<text x="{x:.1f}" y="{_TOP + _HEIGHT + 16}" text-anchor="middle">{tick:g}</text>'
    yield f'<rect class="panel" x="{left}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>'
    for curve in panel.curves:
        if len(curve.line) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, curve.line))
            yield f'<polyline class="{colours[curve.name]} line" points="{path}"/>'
        for x, y in map(place, curve.dots):
            yield f'<circle class="{colours[curve.name]} dot" cx="{x:.1f}" cy="{y:.1f}" r="3.6"/>'


def _ticks(scale: _Scale) -> list[float]:
    low, high = math.exp(scale.low), math.exp(scale.high)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [tick for power in powers for factor in (1, 2, 5) if low <= (tick := factor * 10.0**power) <= high]


def _legend(colours: dict[str, str], x: str, width: float, height: float) -> Iterable[str]:
    at = float(_LEFT)
    for name, colour in colours.items():
        yield f'<circle class="{colour}" cx="{at + 5:.1f}" cy="{height - 14}" r="4"/>'
        yield f'<text x="{at + 14:.1f}" y="{height - 10}">{escape(name)}</text>'
        at += 28 + 6.5 * len(name)
    yield f'<text class="small" x="{width - 16}" y="{height - 10}" text-anchor="end">{escape(x)}</text>'
