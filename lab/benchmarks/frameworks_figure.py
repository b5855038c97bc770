"""The Gap of every model and batch size as bars, one panel per framework: a picture for docs/frameworks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["draw"]

_WIDEST = 0.12
"""The Gap at which a bar reaches the edge of its panel; longer ones end in an arrow."""
_ROW, _HEAD, _NAME, _PANEL, _SPACE = 15, 56, 112, 190, 26
_SHADES = ("#9ecae1", "#4292c6", "#08519c")


def draw(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """An SVG; a framework without rows has no panel."""
    panels = {name: rows for name, rows in results.items() if rows}
    models = list(dict.fromkeys(row["model"] for rows in panels.values() for row in rows))
    height = _HEAD + len(models) * (3 * _ROW // 2 + 8) + 34
    width = _NAME + len(panels) * (_PANEL + _SPACE)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" fill="#222">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<text x="8" y="18" font-size="13" font-weight="bold">Gap: (real − estimated) / real</text>',
        f'<text x="8" y="{height - 8}" fill="#666">Three batch sizes per model, the smallest on top in the lightest '
        "shade. Right of the line oomcast is too low. Dotted: ±5 %.</text>",
    ]
    for number, model in enumerate(models):
        parts.append(f'<text x="{_NAME - 8}" y="{_top(number) + 17}" text-anchor="end">{model}</text>')
    for place, (name, rows) in enumerate(panels.items()):
        parts += _panel(name, rows, models, _NAME + place * (_PANEL + _SPACE), height)
    return "\n".join([*parts, "</svg>", ""])


def _top(number: int) -> int:
    return _HEAD + number * (3 * _ROW // 2 + 8)


def _panel(name: str, rows: Sequence[Mapping[str, Any]], models: Sequence[str], left: int, height: int) -> list[str]:
    middle, bottom = left + _PANEL / 2, height - 28
    scale = _PANEL / 2 / _WIDEST
    parts = [
        f'<text x="{middle}" y="40" text-anchor="middle" font-weight="bold">{name}</text>',
        f'<line x1="{middle}" y1="48" x2="{middle}" y2="{bottom}" stroke="#888"/>',
    ]
    for share in (-0.05, 0.05):
        x = middle + share * scale
        parts.append(f'<line x1="{x}" y1="48" x2="{x}" y2="{bottom}" stroke="#bbb" stroke-dasharray="2 3"/>')
    for number, model in enumerate(models):
        of_model = sorted((row for row in rows if row["model"] == model), key=lambda row: row["batch_size"])
        if not of_model:
            parts.append(f'<text x="{middle + 4}" y="{_top(number) + 17}" fill="#aaa">not run</text>')
        for place, row in enumerate(of_model):
            share = (row["measured"] - row["estimated"]) / row["measured"]
            length = max(min(abs(share), _WIDEST) * scale, 0.8)
            x = middle if share >= 0 else middle - length
            y = _top(number) + 2 + place * 8
            shade = _SHADES[min(place, 2)]
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{length:.1f}" height="7" fill="{shade}"/>')
            if abs(share) > _WIDEST:
                edge = f"{share:+.0%}"
                anchor, at = ("end", middle + length - 3) if share > 0 else ("start", middle - length + 3)
                parts.append(f'<text x="{at:.1f}" y="{y + 6.5}" font-size="8" text-anchor="{anchor}">{edge}</text>')
    return parts
