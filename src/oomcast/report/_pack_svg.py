"""A packing drawn: a bar for each card, a piece for each job, the card's end marked."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..units import GiB, format_bytes
from ._charts import STYLE

if TYPE_CHECKING:
    from ..advise.pack import PackedCard, Packing

__all__ = ["draw_packing"]

_WIDTH, _LABEL, _RISK, _TOP, _ROW, _BAR = 760, 124, 84, 56, 28, 20
_LETTER = 6.4
_COLOURS = "abcd"


def draw_packing(packing: Packing) -> str:
    """One SVG, light or dark as its reader; jobs by their point estimates."""
    largest = max(max(one.card.usable, one.device_total) for one in packing.cards)
    scale = (_WIDTH - _LABEL - _RISK) / largest
    height = _TOP + _ROW * len(packing.cards) + 12
    placed, jobs = packing.placed, packing.placed + len(packing.left_out)
    title = f"{placed} of {jobs} jobs on {packing.used} of {len(packing.cards)} GPUs"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE} .free {{ fill: none; stroke: #9aa5b1 }} svg .job {{ fill: #ffffff; font-size: 11px }}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="head" x="12" y="22">{escape(title)}</text>',
        f'<text class="small" x="{_LABEL}" y="42">estimated memory; the frame is what the card can hold '
        f"(longest: {largest / GiB:.1f} GiB)</text>",
        f'<text class="small" x="{_WIDTH - 12}" y="42" text-anchor="end">P(OOM)</text>',
    ]
    for number, one in enumerate(packing.cards):
        parts += _row(one, _TOP + _ROW * number, scale)
    return "\n".join([*parts, "</svg>"])


def _row(one: PackedCard, top: float, scale: float) -> list[str]:
    parts = [f'<text x="{_LABEL - 8}" y="{top + 15}" text-anchor="end">{escape(one.card.name)}</text>']
    left = float(_LABEL)
    for number, job in enumerate(one.jobs):
        width = job.device_total * scale
        told = escape(f"{job.name}: {format_bytes(job.device_total)}")
        parts.append(
            f'<rect class="{_COLOURS[number % len(_COLOURS)]} bar" x="{left + 0.5:.1f}" y="{top}" '
            f'width="{max(width - 1, 0.5):.1f}" height="{_BAR}"><title>{told}</title></rect>'
        )
        letters = int((width - 8) / _LETTER)
        if letters >= 3:
            name = job.name if len(job.name) <= letters else job.name[: letters - 1] + "…"
            parts.append(f'<text class="job" x="{left + 5:.1f}" y="{top + 14}">{escape(name)}</text>')
        left += width
    frame = one.card.usable * scale
    parts.append(f'<rect class="free" x="{_LABEL}" y="{top - 1}" width="{frame:.1f}" height="{_BAR + 2}"/>')
    risk = f"{one.risk:.1%}" if one.jobs else "free"
    parts.append(f'<text class="small" x="{_WIDTH - 12}" y="{top + 15}" text-anchor="end">{risk}</text>')
    return parts
