"""A difference for the terminal, for programs and as a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import format_bytes
from .diff import Change, Difference
from .page import page
from .page_words import escape, key, size, table
from .words import label, signed_bytes

__all__ = ["difference_as_json", "difference_html", "render_difference"]

_ROWS = 12
_HINT = (
    "One side is an estimate's JSON, which tells the largest tensors only: to compare block by block, write the "
    "prediction with oomcast estimate --snapshot FILE and compare that."
)


def render_difference(difference: Difference) -> RenderableType:
    """The sentence, what was asked differently, the totals, then each way to split the change."""
    parts: list[RenderableType] = [Text(difference.sentence(), style="bold")]
    parts += [Text(f"{name}: {before} → {after}", style="dim") for name, before, after in difference.settings]
    for title, changes in _sections(difference):
        parts += [Text(""), _table(title, changes)]
    if difference.before.kind != difference.after.kind:
        parts += [Text(""), Text(_HINT, style="dim")]
    return Group(*parts)


def difference_as_json(difference: Difference) -> dict[str, Any]:
    """Integers in bytes; all rows, where the text shows the largest."""
    return {
        "before": {"file": difference.before.name, "kind": difference.before.kind},
        "after": {"file": difference.after.name, "kind": difference.after.kind},
        "sentence": difference.sentence(),
        "settings": [{"name": name, "before": a, "after": b} for name, a, b in difference.settings],
        **{
            name: [
                {"name": c.name, "before": c.before, "after": c.after, "change": c.bytes}
                | ({"example": c.note} if c.note else {})
                for c in getattr(difference, name)
            ]
            for name in ("totals", "categories", "modules", "sizes", "lines")
        },
    }


def difference_html(difference: Difference) -> str:
    """The same as a page that needs nothing else."""
    settings = table(
        ("Asked", "Before", "After"), ((escape(a), escape(b), escape(c)) for a, b, c in difference.settings)
    )
    body = [
        f"<header><h1>{escape(difference.before.name)} and {escape(difference.after.name)}</h1>"
        f'<p class="verdict">{escape(difference.sentence())}</p></header>',
        f"<section><h2>What was asked differently</h2>{settings}</section>" if difference.settings else "",
    ]
    for title, changes in _sections(difference):
        rows = (
            (
                key(c.name) if title == _CATEGORY else escape(c.name),
                size(c.before),
                size(c.after),
                f"<b>{escape(signed_bytes(c.bytes))}</b>",
                escape(c.note),
            )
            for c in changes
        )
        head = (title, "Before", "After", "Change", "For example" if any(c.note for c in changes) else "")
        body.append(f"<section><h2>{escape(title)}</h2>{table(head, rows, numeric=(1, 2, 3))}</section>")
    if difference.before.kind != difference.after.kind:
        body.append(f'<p class="dim">{escape(_HINT)}</p>')
    return page("What changed", "\n".join(body))


_CATEGORY = "Category"


def _sections(difference: Difference) -> list[tuple[str, tuple[Change, ...]]]:
    named = [
        ("At the peak", difference.totals),
        (_CATEGORY, difference.categories),
        ("Module", difference.modules),
        ("Blocks by size", difference.sizes),
        ("Line", difference.lines),
    ]
    return [(title, changes) for title, changes in named if changes]


def _table(title: str, changes: Sequence[Change]) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column(title, overflow="fold")
    for name in ("Before", "After", "Change"):
        shown.add_column(name, justify="right", no_wrap=True)
    has_notes = any(change.note for change in changes)
    if has_notes:
        shown.add_column("For example", overflow="fold")
    for change in changes[:_ROWS]:
        words = [
            label(change.name),
            format_bytes(change.before),
            format_bytes(change.after),
            signed_bytes(change.bytes),
        ]
        shown.add_row(*(Text(word) for word in (*words, *([change.note] if has_notes else []))))
    rest = changes[_ROWS:]
    if any(change.bytes for change in rest):
        shown.add_row(f"{len(rest)} others", *_bytes(sum(c.before for c in rest), sum(c.after for c in rest)))
    return shown


def _bytes(before: int, after: int) -> tuple[str, str, str]:
    return format_bytes(before), format_bytes(after), signed_bytes(after - before)
