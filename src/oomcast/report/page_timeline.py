"""The job over time: bands drawn once in units of events and bytes; to look closer is only another window.

By category the bands are drawn here. Tensor by tensor, or without some categories, the page's script draws them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..estimation import Estimate
from ..simulate import Action, ActionKind, History
from ..units import format_bytes
from .charts import tick_words, ticks_of_bytes
from .curve import CATEGORIES, Bands, Curve, Stretch, bands_of, curve_of
from .page_words import embedded_json, escape, key
from .tensor_bands import TensorBand, TensorBands, tensor_bands
from .words import label, shape_words

__all__ = ["HEIGHT", "band_path", "chart_top", "static_timeline", "timeline"]

HEIGHT = 4000
"""Units of the drawing from 0 bytes to the top of the chart."""
_NEAR = 1.6
"""The device's end is drawn if it is not further up than this many times the peak."""
_MOST_STEPS = 4
_LOWEST_TOP = 1024


def timeline(estimate: Estimate, history: History) -> str:
    """The chart with its controls, its readout and the data that both read."""
    curve = curve_of(history)
    bands = bands_of(estimate, curve)
    top = chart_top(estimate, bands)
    by_tensor = tensor_bands(history, curve)
    window = _around_the_peak(curve)
    buttons = [("Whole run", 0, curve.end), *_steps(curve), ("Around the peak", *window)]
    controls = "".join(
        f'<button type="button" data-from="{first}" data-to="{end}" aria-pressed="false">{name}</button>'
        for name, first, end in buttons
    )
    views = "".join(
        f'<button type="button" data-view="{name}" aria-pressed="{str(name == "parts").lower()}">{words}</button>'
        for name, words in (("parts", "By category"), ("tensors", "By tensor"), ("kinds", "Equal tensors together"))
    )
    zoom = "".join(
        f'<button type="button" data-zoom="{what}" aria-label="{words}">{sign}</button>'
        for what, words, sign in (
            ("in", "closer", "+"),
            ("out", "farther", "−"),
            ("left", "earlier", "◂"),
            ("right", "later", "▸"),
        )
    )
    return (
        f'<figure class="timeline" id="timeline"><div class="controls" role="toolbar" aria-label="Bands">{views}</div>'
        f'<div class="controls" role="toolbar" aria-label="View">{controls}<span class="zoom">{zoom}</span></div>'
        f"{_plot(estimate, curve, bands, top)}"
        f'<div class="legend" role="group" aria-label="Shown">{_filter(bands)}</div>'
        f'<div class="readout" id="readout" aria-live="polite"></div>'
        f"<figcaption><p>{_caption(curve)}</p>{_grouping(by_tensor)}</figcaption></figure>"
        + embedded_json("curve", {"axes": _axes(top), **_data(history, curve, bands, by_tensor)})
    )


def static_timeline(estimate: Estimate, history: History) -> str:
    """The chart alone, coarser, for places that run no scripts."""
    curve = curve_of(history, columns=700, exact=60)
    bands = bands_of(estimate, curve)
    return (
        f'<figure class="timeline">{_plot(estimate, curve, bands, chart_top(estimate, bands))}'
        f'<div class="legend">{_legend(bands)}</div></figure>'
    )


def chart_top(estimate: Estimate, bands: Bands) -> int:
    top = bands.top * 1.06
    if bands.top and estimate.device_usable <= bands.top * _NEAR:
        top = max(top, estimate.device_usable * 1.05)
    return max(int(top), 1)


def band_path(tops: Sequence[int], starts: Sequence[int], end: int, top: int) -> str:
    """From the floor up to `tops`: bands above are drawn first, so that each shows only where it is not covered."""
    parts = [f"M{starts[0] if starts else 0},{HEIGHT}"]
    before = None
    for start, nbytes in zip(starts, tops, strict=True):
        y = HEIGHT - round(HEIGHT * nbytes / top)
        if y != before:
            parts.append(f"H{start}V{y}")
            before = y
    return "".join(parts) + f"H{end}V{HEIGHT}Z"


def _plot(estimate: Estimate, curve: Curve, bands: Bands, top: int) -> str:
    ticks = ticks_of_bytes(top)
    labels = "".join(f'<span style="bottom:{100 * t / top:.3f}%">{tick_words(t, ticks)}</span>' for t in ticks)
    words = (
        f"Memory over the {curve.end:,} events of the job, by category. The highest is {format_bytes(bands.top)}; "
        "the tables of this page tell the same in numbers."
    )
    return (
        f'<div class="plot"><div class="yaxis" aria-hidden="true">{labels}</div><div class="canvas">'
        f'<svg viewBox="0 0 {max(curve.end, 1)} {HEIGHT}" preserveAspectRatio="none" role="img" tabindex="0" '
        f'aria-label="{escape(words)}">{"".join(_drawn(estimate, curve, bands, top, ticks))}</svg>'
        f'{_limit_words(estimate, top)}<div class="cursor" hidden></div></div>'
        f'<div class="phases" aria-hidden="true">{"".join(_strip(curve))}</div></div>'
    )


def _axes(top: int) -> list[tuple[int, list[tuple[int, str]]]]:
    """Tops of the chart with their ticks, each half of the one before: for when only some categories are shown."""
    tops = [top]
    while tops[-1] > _LOWEST_TOP:
        tops.append(-(-tops[-1] // 2))
    return [(end, [(t, tick_words(t, ticks)) for t in ticks]) for end, ticks in ((t, ticks_of_bytes(t)) for t in tops)]


def _drawn(estimate: Estimate, curve: Curve, bands: Bands, top: int, ticks: Sequence[int]) -> Iterator[str]:
    starts = [column.first for column in curve.columns]
    for tick in ticks:
        y = HEIGHT - HEIGHT * tick / top
        yield f'<line class="grid" x1="0" x2="{curve.end}" y1="{y:.0f}" y2="{y:.0f}"/>'
    for band in reversed(bands.bottom_up):
        path = band_path(band.tops, starts, curve.end, top)
        yield f'<path class="band part-{band.part}" d="{path}"/>'
    for stretch in curve.stretches:
        yield f'<line class="cut" x1="{stretch.first}" x2="{stretch.first}" y1="0" y2="{HEIGHT}"/>'
    if estimate.device_usable <= top:
        y = HEIGHT - HEIGHT * estimate.device_usable / top
        yield f'<line class="full" x1="0" x2="{curve.end}" y1="{y:.0f}" y2="{y:.0f}"/>'


def _limit_words(estimate: Estimate, top: int) -> str:
    if estimate.device_usable > top:
        return ""
    place = 100 * estimate.device_usable / top
    return f'<span class="fullwords" style="bottom:{place:.3f}%">usable: {format_bytes(estimate.device_usable)}</span>'


def _strip(curve: Curve) -> Iterator[str]:
    """Two rows: the phases, and the steps they belong to."""
    for stretch in curve.stretches:
        name = stretch.phase.replace("_", " ")
        yield _place(stretch.first, stretch.end, curve.end, f"phase phase-{stretch.phase}", name, _title(stretch))
    for step, group in itertools.groupby(curve.stretches, key=lambda stretch: stretch.step):
        parts = list(group)
        name = f"step {step + 1}" if step >= 0 else "start"
        yield _place(parts[0].first, parts[-1].end, curve.end, "step", name, name)


def _place(first: int, end: int, whole: int, kind: str, name: str, title: str) -> str:
    place = f"left:{100 * first / whole:.3f}%;width:{100 * (end - first) / whole:.3f}%"
    return (
        f'<span class="{kind}" data-from="{first}" data-to="{end}" data-name="{escape(name)}" title="{escape(title)}" '
        f'style="{place}">{escape(name)}</span>'
    )


def _title(stretch: Stretch) -> str:
    where = f" of step {stretch.step + 1}" if stretch.step >= 0 else ""
    return f"{stretch.phase}{where}: events {stretch.first:,} to {stretch.end - 1:,}"


def _steps(curve: Curve) -> list[tuple[str, int, int]]:
    steps = []
    for step, group in itertools.groupby(curve.stretches, key=lambda stretch: stretch.step):
        parts = list(group)
        if step >= 0:
            steps.append((f"Step {step + 1}", parts[0].first, parts[-1].end))
    return steps if len(steps) <= _MOST_STEPS else [steps[0], steps[1], steps[-1]]


def _around_the_peak(curve: Curve) -> tuple[int, int]:
    if not curve.columns:
        return 0, 0
    middle = curve.columns[curve.peak].moment
    half = min(120, max(curve.end // 8, 10))
    return max(middle - half, 0), min(middle + half, curve.end)


def _legend(bands: Bands) -> str:
    return "".join(key(band.part) for band in reversed(bands.bottom_up))


def _filter(bands: Bands) -> str:
    """The legend, of which each entry hides its category and shows it again."""
    entries = "".join(
        f'<button type="button" data-part="{band.part}" aria-pressed="true" '
        f'title="Hide or show it; with Shift: show nothing else">{key(band.part)}</button>'
        for band in reversed(bands.bottom_up)
    )
    return f'{entries}<button type="button" data-all hidden>Show all</button>'


def _grouping(bands: TensorBands) -> str:
    """What is not drawn tensor by tensor."""
    equal = [band for band in bands.bottom_up if len(band.lives) > 1 and band.kind]
    mixed = [band for band in bands.bottom_up if not band.kind]
    words = "By tensor, each band is one tensor from its birth to its end"
    if equal or mixed:
        small = sum(len(band.lives) for band in equal + mixed)
        words += (
            f", but {small:,} small ones lie together: equal ones in {len(equal):,} "
            f"{_plural('band', len(equal))}, the rest by category. Small is {_small_words(bands)}"
        )
    words += ". "
    if bands.unseen:
        words += f"{bands.unseen:,} tensors came and went between the moments that are drawn and are not shown. "
    return (
        f'<p><span class="grouping">{words}</span><span class="for-screen">Up and down go from tensor to tensor. '
        "The legend hides and shows categories.</span></p>"
    )


def _small_words(bands: TensorBands) -> str:
    """Largest first, as far as such tensors are there."""
    parts = {band.part for band in bands.bottom_up if len(band.lives) > 1 or not band.kind}
    limits = sorted(((bands.least[part], label(part)) for part in parts), reverse=True)
    return "below " + ", ".join(f"{format_bytes(nbytes)} ({name})" for nbytes, name in limits)


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"


def _caption(curve: Curve) -> str:
    words = "Left to right: the job's allocations, frees and kernels in their order; time is not to scale. "
    if not curve.is_exact:
        words += "Events near the peak are drawn one by one, others in short stretches, each at its highest moment. "
    return words + (
        '<span class="for-screen">Point at the chart, or use the arrow keys, to see what is in use and which '
        "line made it; drag to look closer, double click to go back.</span> "
    )


def _data(history: History, curve: Curve, bands: Bands, by_tensor: TensorBands) -> dict[str, Any]:
    tensors = _Tensors(history)
    places = {band.part: place for place, band in enumerate(bands.bottom_up)}
    columns = curve.columns
    return {
        "end": curve.end,
        "height": HEIGHT,
        "peak": curve.peak,
        "first": [column.first for column in columns],
        "moment": [column.moment for column in columns],
        "bands": [
            {
                "part": band.part,
                "bytes": band.values[0] if len(set(band.values)) == 1 else list(band.values),
                "largest": _largest(band.part, curve, tensors),
            }
            for band in bands.bottom_up
        ],
        "action": [tensors.signed(column.action) for column in columns],
        "blocks": [[places[band.part], *_block(band, tensors)] for band in by_tensor.bottom_up],
        "least": [by_tensor.least.get(band.part, 0) for band in bands.bottom_up],
        "stretches": [[s.phase, s.step, s.first, s.end] for s in curve.stretches],
        "tensors": tensors.rows,
        "strings": list(tensors.strings),
    }


def _largest(part: str, curve: Curve, tensors: _Tensors) -> list[int]:
    if part not in CATEGORIES:
        return []
    place = CATEGORIES.index(part)
    return [tensors.number(column.largest[place]) for column in curve.columns]


def _block(band: TensorBand, tensors: _Tensors) -> list[Any]:
    """Tensor, kind, and of one tensor: first and last column, birth and end (-1: none).

    Of several: their count, and the steps of their height, each as columns since the last one and change in units.
    """
    example = band.lives[0]
    head = [tensors.number(example.action), band.kind]
    if len(band.lives) > 1 or not band.kind:
        unit = math.gcd(*(life.action.size for life in band.lives))
        steps = itertools.pairwise([(0, 0), *band.steps()])
        changes = [(column - before, (level - under) // unit) for (before, under), (column, level) in steps]
        return [*head, len(band.lives), [number for change in changes for number in change], unit]
    return [*head, example.first, example.last, example.born, -1 if example.died is None else example.died]


class _Tensors:
    """What a person wants to know of a block, each written once; numbers start at 1, so that 0 is none."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._numbers: dict[tuple[int | None, str, int], int] = {}
        self.rows: list[list[int]] = []
        """Bytes, category, operator, module, source, shape with dtype: the latter by their place in `strings`."""
        self.strings: dict[str, int] = {}

    def signed(self, action: Action | None) -> int:
        """Below zero where it is given back."""
        if action is None:
            return 0
        return self.number(action) if action.kind is ActionKind.ALLOCATE else -self.number(action)

    def number(self, action: Action | None) -> int:
        if action is None:
            return 0
        same = (action.allocation, action.name if action.allocation is None else "", action.size)
        if same not in self._numbers:
            self._numbers[same] = len(self._numbers) + 1
            self.rows.append(self._row(action))
        return self._numbers[same]

    def _row(self, action: Action) -> list[int]:
        module = source = shape = ""
        if action.allocation is not None:
            made = self._history.trace.allocations[action.allocation]
            module, source, shape = made.module, made.source, shape_words(made.shape, made.dtype)
        words = (self._history.category_of(action).value, action.name, module, source, shape)
        return [action.size, *(self.strings.setdefault(word, len(self.strings)) for word in words)]
