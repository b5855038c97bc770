"""Figures for papers and slides: an estimate's timeline with its breakdown, and memory against a parameter.

They are drawn as SVG on white, with all their words in them. `as_picture` writes one as SVG, or as PNG by resvg, which
the extra `png` brings.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any

from ..advise import Fit
from ..errors import BadInput
from ..estimation import Estimate
from ..units import GiB, format_bytes
from .charts import Limit, Series, chart, tick_words, ticks_of_bytes
from .curve import Bands, Curve, Stretch, bands_of, curve_of, parts_of
from .page_timeline import HEIGHT, band_path, chart_top
from .page_words import escape
from .words import colour, label, setting_words

__all__ = ["as_picture", "check_picture", "draw_estimate", "fit_svg"]

_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 760, 66, 14, 48, 250
_STRIP, _BAR, _ROW, _LETTER = 18, 22, 20, 5.8
_STYLE = (
    "text{font:11px Helvetica,Arial,sans-serif;fill:#1b232c}.head{font-size:14px;font-weight:bold}"
    ".dim{fill:#55606c}.grid{stroke:#d5dbe1}.cut{stroke:#1b232c;stroke-opacity:.18}"
    ".full{stroke:#b3201f;stroke-width:1.5;stroke-dasharray:6 4}.axis{stroke:#55606c}.edge{stroke:#00000040}"
)


def draw_estimate(estimate: Estimate) -> str:
    """Memory over the job by category, and under it the peak as a bar with its parts."""
    if estimate.history is None or not estimate.history.actions:
        raise BadInput("there is no timeline to draw: the estimator follows no allocations; use the simulator's.")
    curve = curve_of(estimate.history, columns=900, exact=80)
    bands = bands_of(estimate, curve)
    parts = [*_head(estimate), *_timeline(estimate, curve, bands), *_strip(curve)]
    bottom, bar = _bar(estimate, _TOP + _PLOT + 2 * _STRIP + 34)
    title = f"{estimate.workload.get('job', 'job')} on {estimate.device}"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {bottom}" width="{_WIDTH}" '
            f'height="{bottom}" role="img" aria-label="{escape(title)}">',
            f'<style>{_STYLE}</style><rect width="{_WIDTH}" height="{bottom}" fill="#ffffff"/>',
            *parts,
            *bar,
            "</svg>",
            "",
        ]
    )


def _head(estimate: Estimate) -> Iterator[str]:
    job = str(estimate.workload.get("job", "job"))
    total, usable = format_bytes(estimate.device_total), format_bytes(estimate.device_usable)
    words = f"{setting_words(estimate)}; {total} of {usable} usable on {estimate.device}"
    yield f'<text class="head" x="{_LEFT}" y="20">{escape(job)}</text>'
    yield f'<text class="dim" x="{_LEFT}" y="36">{escape(words)}</text>'


def _timeline(estimate: Estimate, curve: Curve, bands: Bands) -> Iterator[str]:
    top, width, bottom = chart_top(estimate, bands), _WIDTH - _LEFT - _RIGHT, _TOP + _PLOT
    ticks = ticks_of_bytes(top)
    for tick in ticks:
        y = bottom - _PLOT * tick / top
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="dim" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick_words(tick, ticks)}</text>'
    yield f'<g transform="translate({_LEFT} {_TOP}) scale({width / max(curve.end, 1):.6g} {_PLOT / HEIGHT:.6g})">'
    starts = [column.first for column in curve.columns]
    for band in reversed(bands.bottom_up):
        yield f'<path fill="{colour(band.part)}" d="{band_path(band.tops, starts, curve.end, top)}"/>'
    yield "</g>"
    for stretch in curve.stretches:
        x = _across(stretch.first, curve)
        yield f'<line class="cut" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{bottom}"/>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    if estimate.device_usable <= top:
        y = bottom - _PLOT * estimate.device_usable / top
        yield f'<line class="full" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        words = f"usable: {format_bytes(estimate.device_usable)}"
        yield f'<text x="{_LEFT + 6}" y="{y + 13:.1f}">{words}</text>'


def _strip(curve: Curve) -> Iterator[str]:
    """The names of phases and steps, where there is room for them."""
    y = _TOP + _PLOT + 14
    for stretch in curve.stretches:
        yield from _centred(stretch, curve, y, stretch.phase.replace("_", " "), "dim")
    for step, group in itertools.groupby(curve.stretches, key=lambda stretch: stretch.step):
        parts = list(group)
        whole = Stretch("", step, parts[0].first, parts[-1].end)
        yield from _centred(whole, curve, y + _STRIP, f"step {step + 1}" if step >= 0 else "start", "")


def _centred(stretch: Stretch, curve: Curve, y: int, words: str, kind: str) -> Iterator[str]:
    left, right = _across(stretch.first, curve), _across(stretch.end, curve)
    if right - left > _LETTER * len(words):
        yield f'<text class="{kind}" x="{(left + right) / 2:.1f}" y="{y}" text-anchor="middle">{escape(words)}</text>'


def _across(event: int, curve: Curve) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * event / max(curve.end, 1)


def _bar(estimate: Estimate, top: int) -> tuple[int, list[str]]:
    parts = [(part, nbytes) for part, nbytes in parts_of(estimate) if nbytes > 0]
    whole = max(sum(nbytes for _, nbytes in parts), 1)
    width = _WIDTH - _LEFT - _RIGHT
    drawn, x = [f'<text class="dim" x="{_LEFT}" y="{top - 6}">At the peak</text>'], float(_LEFT)
    for part, nbytes in parts:
        length = width * nbytes / whole
        drawn.append(f'<rect x="{x:.1f}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{colour(part)}"/>')
        x += length
    drawn.append(f'<rect class="edge" x="{_LEFT}" y="{top}" width="{width}" height="{_BAR}" fill="none"/>')
    bottom, words = _legend(parts, top + _BAR + _ROW)
    return bottom, drawn + words


def _legend(parts: Sequence[tuple[str, int]], y: int) -> tuple[int, list[str]]:
    x, drawn = float(_LEFT), []
    for part, nbytes in parts:
        words = f"{label(part)} {format_bytes(nbytes)}"
        length = 30 + _LETTER * len(words)
        if x + length > _WIDTH and x > _LEFT:
            x, y = float(_LEFT), y + _ROW
        swatch = f'<rect class="edge" x="{x:.1f}" y="{y - 9}" width="10" height="10" fill="{colour(part)}"/>'
        drawn.append(f'{swatch}<text x="{x + 15:.1f}" y="{y}">{escape(words)}</text>')
        x += length
    return y + _ROW, drawn


def fit_svg(fit: Fit) -> str:
    """Two curves with the interval around the upper one, the values that were captured, and where the device ends."""
    if not fit.curve:
        raise ValueError("the search was asked for no curve")
    interval = [(p.value, p.low / GiB, p.high / GiB) for p in fit.curve]
    reserved = [(p.value, p.reserved / GiB) for p in fit.curve]
    captured = [(p.value, p.reserved / GiB) for p in fit.curve if p.captured]
    lines = [
        Series("reserved, with its interval", reserved, joined=True, dots=False, band=interval),
        Series("allocated", [(p.value, p.allocated / GiB) for p in fit.curve], joined=True, dots=False),
        Series("captured", captured),
    ]
    limits = [Limit(f"{fit.device}: {format_bytes(fit.device_usable)}", y=fit.device_usable / GiB)]
    if fit.value is not None:
        limits.append(Limit(f"largest: {fit.value}", x=fit.value))
    title = f"{fit.job}: memory by {fit.parameter}, {100 * fit.confidence:.4g}% sure"
    return chart(title, lines, x="", y=f"GiB, context included, against {fit.parameter}", limits=limits)


_PIXELS = 3
"""Of the PNG for each unit of the SVG: 288 dots per inch."""
_FAMILIES = (
    *("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans", "Noto Sans", "Segoe UI", "Roboto", "Open Sans"),
    *("Nimbus Sans", "FreeSans", "Ubuntu", "Cantarell", "Lato", "Verdana", "Droid Sans", "Source Sans 3", "Inter"),
)
_WORD = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text y="16" font-family="{}">Mm</text></svg>'


def check_picture(file: str) -> None:
    """Refuse what cannot be written, before the work."""
    suffix = PurePath(file).suffix.lower()
    if suffix not in (".svg", ".png"):
        raise BadInput(f"figures are written as SVG or PNG; name a file like figure.svg or figure.png, not {file!r}.")
    if suffix == ".png":
        _family()


def as_picture(svg: str, file: str) -> bytes:
    """In the form that the file's name asks for."""
    check_picture(file)
    if PurePath(file).suffix.lower() == ".svg":
        return svg.encode()
    drawn = _renderer().svg_to_bytes(
        svg_string=svg, zoom=_PIXELS, background="white", font_family=_family(), sans_serif_family=_family()
    )
    return bytes(drawn)


def _renderer() -> Any:
    try:
        import resvg_py
    except ModuleNotFoundError:
        raise BadInput(
            "PNG needs the package resvg-py; install it with: pip install 'oomcast[png]', or write a .svg file."
        ) from None
    return resvg_py


@functools.cache
def _family() -> str:
    """The first family that this machine has: resvg leaves text out, without a word, where it finds no font."""
    draw = _renderer().svg_to_bytes
    blank = bytes(draw(svg_string=_WORD.format("none"), skip_system_fonts=True))
    for family in _FAMILIES:
        if bytes(draw(svg_string=_WORD.format(family))) != blank:
            return family
    raise BadInput(
        "this machine has no font for the words of a PNG; install one, such as fonts-dejavu, or write a .svg file."
    )
