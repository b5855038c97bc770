"""Pictures of a training as SVG text: confusion matrices, and networks as points coloured by their class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from numpy.typing import NDArray

__all__ = ["confusion_picture", "groups_picture", "points_picture", "principal_components", "t_sne"]

_CELL, _LEFT, _TOP, _SIDE = 46, 70, 66, 420
_COLOURS = ("#2f6fb2", "#c96a1b", "#2f8f5b", "#8257a6", "#b23a48", "#5b6470", "#1b998b", "#b5838d")
_STYLE = """
  .page { fill: #ffffff } text { font-family: system-ui, sans-serif; fill: #1f2933; font-size: 12px }
  .head { font-size: 14px; font-weight: 600 } .small { fill: #5b6470 } .cell { stroke: #dfe3e8 }
  .right { fill: #2f6fb2 } .wrong { fill: #d1495b } .dot { fill-opacity: 0.6 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #14181d } text { fill: #e4e7eb } .small { fill: #9aa5b1 } .cell { stroke: #2c343d }
  }
"""


def confusion_picture(title: str, names: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """True classes downwards, estimated ones across; shares of the true class as strength of colour."""
    size = len(counts)
    width, height = _LEFT + _CELL * size + 20, _TOP + _CELL * size + 20
    parts = [_text(12, 22, title, "head"), _text(12, 42, "true class downwards, estimated across", "small")]
    for i, line in enumerate(counts):
        total = max(sum(line), 1)
        parts.append(_text(_LEFT - 8, _TOP + _CELL * i + _CELL / 2 + 4, names[i], anchor="end"))
        parts.append(_text(_LEFT + _CELL * (i + 0.5), _TOP - 6, names[i], "small", "middle"))
        for j, count in enumerate(line):
            x, y = _LEFT + _CELL * j, _TOP + _CELL * i
            kind = "right" if i == j else "wrong"
            parts.append(
                f'<rect class="cell {kind}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" '
                f'fill-opacity="{0.85 * count / total:.3f}"/>'
            )
            if count:
                parts.append(_text(x + _CELL / 2, y + _CELL / 2 + 4, str(count), anchor="middle"))
    return _svg(width, height, title, parts)


def groups_picture(title: str, groups: Mapping[str, Sequence[float]], names: Sequence[str], most: float) -> str:
    """Upright bars in groups; a bar above `most` is cut there and says its value."""
    bar, gap, height, left, top = 13, 22, 260, 46, 76
    step = bar * len(names) + gap
    width = left + step * len(groups) + 16
    parts = [_text(12, 22, title, "head")]
    for place, name in enumerate(names):
        at, line_at = left + place % 3 * 240, 40 + place // 3 * 17
        parts.append(f'<rect x="{at}" y="{line_at - 9}" width="10" height="10" fill="{_COLOURS[place]}"/>')
        parts.append(_text(at + 15, line_at, name))
    for tick in range(0, round(most) + 1, 8):
        y = top + height * (1 - tick / most)
        parts.append(f'<line class="cell" x1="{left}" y1="{y:.1f}" x2="{width - 12}" y2="{y:.1f}"/>')
        parts.append(_text(left - 6, y + 4, str(tick), "small", "end"))
    for number, (name, values) in enumerate(groups.items()):
        start = left + gap / 2 + step * number
        for place, value in enumerate(values):
            tall = height * min(value, most) / most
            x, y = start + bar * place, top + height - tall
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 2}" height="{tall:.1f}" fill="{_COLOURS[place]}"/>'
            )
            if value > most:
                parts.append(_text(x + bar / 2, y - 3, f"{value:.0f}", "small", "middle"))
        middle = start + bar * len(values) / 2
        for line, words in enumerate(name.split(" × ")):
            parts.append(
                _text(middle, top + height + 16 + 15 * line, words if not line else f"× {words}", "", "middle")
            )
    return _svg(width, top + height + 44, title, parts)


def points_picture(title: str, places: NDArray[np.float64], labels: Sequence[int], names: Sequence[str]) -> str:
    """Two coordinates for each network; the lower classes first, so that the few large ones are seen."""
    low, high = places.min(axis=0), places.max(axis=0)
    unit = (places - low) / np.maximum(high - low, 1e-12)
    parts = [_text(12, 22, title, "head")]
    for label in sorted(set(labels)):
        colour = _COLOURS[label % len(_COLOURS)]
        dots = [
            f'<circle cx="{20 + x * _SIDE:.1f}" cy="{44 + (1 - y) * _SIDE:.1f}" r="2.4"/>'
            for (x, y), own in zip(unit, labels, strict=True)
            if own == label
        ]
        parts.append(f'<g class="dot" fill="{colour}">{"".join(dots)}</g>')
    for place, label in enumerate(sorted(set(labels))):
        y = 52 + 20 * place
        parts.append(f'<circle cx="{_SIDE + 44}" cy="{y - 4}" r="5" fill="{_COLOURS[label % len(_COLOURS)]}"/>')
        parts.append(_text(_SIDE + 56, y, names[label]))
    return _svg(_SIDE + 190, _SIDE + 64, title, parts)


def principal_components(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """The first two, of standardised columns, and the share of the variance that they hold."""
    scaled = _standardised(x)
    left, strength, _ = np.linalg.svd(scaled, full_matrices=False)
    share = float((strength[:2] ** 2).sum() / max((strength**2).sum(), 1e-12))
    return np.asarray(left[:, :2] * strength[:2], dtype=np.float64), share


def t_sne(x: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE

    perplexity = min(30.0, max((len(x) - 1) / 3, 1.0))
    found = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(_standardised(x))
    return np.asarray(found, dtype=np.float64)


def _standardised(x: NDArray[np.float64]) -> NDArray[np.float64]:
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 1e-9, spread, math.inf), dtype=np.float64)


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-label="{escape(title)}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{width:g}" height="{height:g}"/>',
            *parts,
            "</svg>",
        ]
    )
