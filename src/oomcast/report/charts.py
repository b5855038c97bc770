"""Small charts as SVG text: points and lines over two linear axes, and horizontal bars.

They are light or dark as their reader's page is. Axes of bytes have their ticks at round numbers of a power of two
(`ticks_of_bytes`), which other drawings use as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ..units import GiB, KiB, MiB

__all__ = ["STYLE", "Limit", "Series", "bars", "chart", "tick_words", "ticks_of_bytes"]

_MOST_TICKS = 6


def ticks_of_bytes(top: int) -> list[int]:
    """From 0 up to `top`, at most seven, at 1, 2, 5, 10, 20, 50 … of the fitting unit."""
    unit = 1
    while top >= unit * KiB:
        unit *= KiB
    # Below three of a unit its steps would be too coarse: 2.5 GiB is told in halves.
    steps = [unit // 8, unit // 4, unit // 2] if unit > 1 else []
    steps += [unit * factor for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    step = next((step for step in steps if top // step <= _MOST_TICKS), steps[-1])
    return list(range(0, top + 1, step))


def tick_words(nbytes: int, ticks: Sequence[int]) -> str:
    """All ticks of one axis have the unit of the largest."""
    unit, name = next(((u, n) for u, n in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")) if ticks[-1] >= u), (1, "B"))
    return f"{nbytes / unit:g} {name}" if nbytes else "0"


_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 340, 64, 16, 44, 46
_BAR_HEIGHT, _LETTER = 26, 6.7

STYLE = """
  .paper { fill: #ffffff } .grid { stroke: #dfe3e8; stroke-width: 1 } .same { stroke: #5b6470; stroke-dasharray: 5 4 }
  .a { fill: #2f6fb2; stroke: #2f6fb2 } .b { fill: #c96a1b; stroke: #c96a1b } .c { fill: #2f8f5b; stroke: #2f8f5b }
  .d { fill: #8257a6; stroke: #8257a6 } .dot { fill-opacity: 0.6; stroke: none } .line { fill: none; stroke-width: 2 }
  .band { stroke: none; fill-opacity: 0.18 } .limit { stroke: #b3201f; stroke-width: 1.5; stroke-dasharray: 7 4 }
  .bar { stroke: none; fill-opacity: 0.85 }
  svg text { font-family: system-ui, sans-serif; fill: #1f2933; font-size: 12px; stroke: none }
  svg .head { font-size: 14px; font-weight: 600 } svg .small { fill: #5b6470 }
  @media (prefers-color-scheme: dark) {
    .paper { fill: #1b2027 } .grid { stroke: #2c343d } .same { stroke: #9aa5b1 }
    .a { fill: #6aa9e9; stroke: #6aa9e9 } .b { fill: #f0a35e; stroke: #f0a35e } .c { fill: #6fcf97; stroke: #6fcf97 }
    .d { fill: #bb9be0; stroke: #bb9be0 } .limit { stroke: #ff8a80 }
    svg text { fill: #e4e7eb } svg .small { fill: #9aa5b1 }
  }
"""
_COLOURS = "abcd"
_SAME = 1e-9
"""Values this close share a place; the axis then shows what is around it."""


@dataclass(frozen=True)
class Series:
    """Points of one kind; joined by a line if asked so."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = False
    dots: bool = True
    band: Sequence[tuple[float, float, float]] = ()
    """x with a low and a high y: drawn as a shaded band behind the points."""


@dataclass(frozen=True)
class Limit:
    """A line across the panel that is no data: at one height, or at one place of the x axis. Its words stand on it."""

    words: str
    x: float | None = None
    y: float | None = None


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        step = _nice((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def chart(
    title: str,
    series: Sequence[Series],
    *,
    x: str,
    y: str,
    diagonal: bool = False,
    x_ticks: Iterable[tuple[float, str]] | None = None,
    limits: Sequence[Limit] = (),
) -> str:
    """One panel. `diagonal` draws where both axes are equal, which then have one scale."""
    points = [point for curve in series for point in curve.points]
    if not points:
        raise ValueError("a chart needs points")
    points += [(x, y) for curve in series for x, *sides in curve.band for y in sides]
    xs = [point[0] for point in points] + [limit.x for limit in limits if limit.x is not None]
    ys = [point[1] for point in points] + [limit.y for limit in limits if limit.y is not None]
    if diagonal:
        xs = ys = [*xs, *ys]
    across = _Axis(*_bounds(xs, from_zero=diagonal), _LEFT, _WIDTH - _RIGHT)
    up = _Axis(*_bounds(ys, from_zero=True), _HEIGHT - _BOTTOM, _TOP)
    marks = list(x_ticks) if x_ticks is not None else [(tick, f"{tick:g}") for tick in across.ticks()]
    parts = [*_frame(title, across, up, marks, x, y)]
    if diagonal:
        high = min(across.high, up.high)
        parts.append(_line(across, up, (0, 0), (high, high), "same"))
    for number, curve in enumerate(series):
        parts += _drawn(curve, across, up, _COLOURS[number % len(_COLOURS)])
    for limit in limits:
        parts += _limit(limit, across, up)
    parts += _legend([curve.name for curve in series])
    return _svg(_WIDTH, _HEIGHT, title, parts)


def bars(title: str, values: Sequence[tuple[str, float]], words: Callable[[float], str]) -> str:
    """Horizontal bars from 0; a negative value is drawn with its length, its words say the sign."""
    longest = max((abs(value) for _, value in values), default=0) or 1
    height = _TOP + _BAR_HEIGHT * len(values) + 8
    label = 20 + _LETTER * max((len(name) for name, _ in values), default=0)
    room = max(_WIDTH - label - 100, 40)
    parts = [f'<text class="head" x="12" y="24">{escape(title)}</text>']
    for number, (name, value) in enumerate(values):
        top = _TOP + number * _BAR_HEIGHT
        length = abs(value) / longest * room
        parts.append(f'<text x="{label - 8:.1f}" y="{top + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="a bar" x="{label:.1f}" y="{top}" width="{length:.1f}" height="{_BAR_HEIGHT - 8}"/>')
        parts.append(f'<text class="small" x="{label + length + 6:.1f}" y="{top + 14}">{escape(words(value))}</text>')
    return _svg(_WIDTH, height, title, parts)


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img" aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}"/>',
            *parts,
            "</svg>",
        ]
    )


def _frame(title: str, across: _Axis, up: _Axis, marks: Sequence[tuple[float, str]], x: str, y: str) -> Iterable[str]:
    yield f'<text class="head" x="12" y="20">{escape(title)}</text>'
    yield f'<text class="small" x="12" y="36">{escape(y)}</text>'
    for tick in up.ticks():
        yield _line(across, up, (across.low, tick), (across.high, tick), "grid")
        yield f'<text x="{_LEFT - 8}" y="{up.at(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for tick, label in marks:
        yield _line(across, up, (tick, up.low), (tick, up.high), "grid")
        x_at, y_at = across.at(tick), _HEIGHT - _BOTTOM + 16
        yield f'<text x="{x_at:.1f}" y="{y_at}" text-anchor="middle">{escape(label)}</text>'
    yield f'<text class="small" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 10}" text-anchor="end">{escape(x)}</text>'


def _line(across: _Axis, up: _Axis, start: tuple[float, float], end: tuple[float, float], kind: str) -> str:
    x1, x2, y1, y2 = across.at(start[0]), across.at(end[0]), up.at(start[1]), up.at(end[1])
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _drawn(curve: Series, across: _Axis, up: _Axis, colour: str) -> Iterable[str]:
    places = [(across.at(x), up.at(y)) for x, y in curve.points]
    if curve.band:
        edge = [(x, high) for x, _, high in curve.band] + [(x, low) for x, low, _ in reversed(curve.band)]
        outline = " ".join(f"{across.at(x):.1f},{up.at(y):.1f}" for x, y in edge)
        yield f'<polygon class="{colour} band" points="{outline}"/>'
    if curve.joined:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="{colour} line" points="{path}"/>'
    for x, y in places if curve.dots else ():
        yield f'<circle class="{colour} dot" cx="{x:.1f}" cy="{y:.1f}" r="{3.2 if curve.joined else 4}"/>'


def _limit(limit: Limit, across: _Axis, up: _Axis) -> Iterable[str]:
    if limit.y is not None:
        yield _line(across, up, (across.low, limit.y), (across.high, limit.y), "limit")
        yield f'<text x="{_LEFT + 6}" y="{up.at(limit.y) - 5:.1f}">{escape(limit.words)}</text>'
    if limit.x is not None:
        yield _line(across, up, (limit.x, up.low), (limit.x, up.high), "limit")
        x, is_right = across.at(limit.x), across.at(limit.x) > (_LEFT + _WIDTH) / 2
        place = f'x="{x - 5:.1f}" text-anchor="end"' if is_right else f'x="{x + 5:.1f}"'
        yield f'<text {place} y="{_HEIGHT - _BOTTOM - 8}">{escape(limit.words)}</text>'


def _legend(names: Sequence[str]) -> Iterable[str]:
    x = _LEFT
    for number, name in enumerate(names):
        yield f'<circle class="{_COLOURS[number % len(_COLOURS)]}" cx="{x + 5}" cy="{_HEIGHT - 14}" r="4"/>'
        yield f'<text x="{x + 14}" y="{_HEIGHT - 10}">{escape(name)}</text>'
        x += 30 + 7 * len(name)


def _bounds(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if from_zero:
        low = min(low, 0.0)
    size = max(abs(low), abs(high))
    if high - low <= _SAME * max(size, 1.0):
        low, high = low - max(size, 1.0) / 2, high + max(size, 1.0) / 2
    margin = (high - low) * 0.06
    return (low if from_zero and low == 0 else low - margin), high + margin


def _nice(step: float) -> float:
    """The next of 1, 2, 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= step * 0.999)
