"""Pieces of HTML: whatever comes from outside is escaped here, and every size carries its exact bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from ..units import format_bytes
from .words import label, short_source

__all__ = ["embedded_json", "escape", "key", "share", "size", "source", "table"]


def size(nbytes: int) -> str:
    """As people read it; the exact number is the element's value and its tooltip."""
    return f'<data value="{nbytes}" title="{nbytes:,} bytes">{format_bytes(nbytes)}</data>'


def share(part: int, whole: int) -> str:
    return f"{part / max(whole, 1):.1%}"


def key(part: str) -> str:
    """A category's name with its colour."""
    return f'<span class="key"><i class="swatch part-{escape(part)}"></i>{escape(label(part))}</span>'


def source(path: str) -> str:
    return f'<code class="line" title="{escape(path)}">{escape(short_source(path))}</code>' if path else "–"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numeric: Iterable[int] = (),
    kind: str = "",
    caption: str = "",
) -> str:
    """`rows` are HTML already; `numeric` columns are set to the right."""
    right = set(numeric)

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(f"<{tag}{' class=num' if n in right else ''}>{cell}</{tag}>" for n, cell in enumerate(row))

    top = cells('th scope="col"', [escape(cell) for cell in head]).replace('</th scope="col">', "</th>")
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll"><table class="{kind}">{title}<thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def embedded_json(name: str, data: Any) -> str:
    """Data for the page's script. Nothing in it can end the element or begin another."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'
