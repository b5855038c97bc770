"""What is held at the peak, on the page: tiles by module, and a flame graph by module or by source line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..simulate import History
from .curve import CATEGORIES
from .held_tree import Held, line_tree, module_tree
from .page_words import embedded_json, escape, share, size, source, table
from .words import LABELS, short_source

__all__ = ["flame_graph", "treemap"]

_ROWS = 60


def treemap(history: History) -> str:
    tree = module_tree(history)
    names = (
        (f'<code style="padding-left:{1.2 * level:.1f}em">{escape(path)}</code>', module)
        for level, path, module in list(tree.walk(3))[:_ROWS]
    )
    return (
        '<figure class="modules" id="modules"><nav class="path" aria-label="Module path"></nav>'
        '<div class="map" role="group" aria-label="Modules by their memory at the peak; the table below has the same">'
        "</div><figcaption>Each tile is a module, as large as what it holds at the peak; the colours are the "
        'categories. <span class="for-screen">Choose a tile to see its parts.</span></figcaption>'
        f"{_as_table('Module', names, tree.total)}"
        "</figure>" + embedded_json("tree", {"parts": CATEGORIES, "root": _plain(tree)})
    )


def flame_graph(history: History) -> str:
    """The tree of modules with the lines beneath, and that of files and lines; the reader chooses which is drawn."""
    modules, lines = module_tree(history, with_lines=True), line_tree(history)
    trees = (("By module", "modules", modules), ("By source line", "lines", lines))
    views = "".join(
        f'<button type="button" data-tree="{name}" aria-pressed="{str(not number).lower()}">{words}</button>'
        for number, (words, name, _) in enumerate(trees)
    )
    sources: dict[str, int] = {}
    data = {"parts": CATEGORIES, **{name: _plain(tree, sources) for _, name, tree in trees}}
    of_lines = [(file, held) for file in lines.children for held in (file.children or [file])]
    of_lines.sort(key=lambda one: -one[1].total)
    names = ((source(held.line) if held.line else _nameless(file, held), held) for file, held in of_lines[:_ROWS])
    return (
        f'<figure class="flame" id="flame"><div class="controls" role="toolbar" aria-label="Arrange">{views}</div>'
        '<div class="frames" role="group" aria-label="What is held at the peak; the tables of this page have the same">'
        '</div><div class="readout" aria-live="polite"></div><figcaption>Each bar is as wide as what it holds at the '
        "peak; beneath it are its parts, down to the source line where that is known. "
        '<span class="for-screen">Choose a bar to look closer, one above it to go back; the arrow keys go from bar to '
        "bar, Escape goes back.</span></figcaption>"
        f"{_as_table('Line', names, lines.total)}"
        "</figure>" + embedded_json("held", {**data, "sources": list(sources)})
    )


def _nameless(file: Held, held: Held) -> str:
    return escape(held.name if file is held else f"{short_source(file.name)}: {held.name}")


def _as_table(what: str, names: Iterable[tuple[str, Held]], whole: int) -> str:
    head = (what, "Memory", "Share of the tensors", "Mostly")
    rows = [(name, size(held.total), share(held.total, whole), escape(_mostly(held))) for name, held in names]
    return (
        f'<details class="astable"><summary>{what}s as a table</summary>{table(head, rows, numeric=(1, 2))}</details>'
    )


def _mostly(held: Held) -> str:
    place = max(range(len(CATEGORIES)), key=lambda number: held.bytes[number])
    return LABELS[CATEGORIES[place]]


def _plain(held: Held, sources: dict[str, int] | None = None) -> list[Any]:
    """Name, bytes by category, children; the name of a line is its place in `sources`."""
    name: str | int = held.name
    if held.line and sources is not None:
        name = sources.setdefault(held.line, len(sources))
    return [name, held.bytes, [_plain(child, sources) for child in held.children]]
