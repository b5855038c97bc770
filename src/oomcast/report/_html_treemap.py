"""The peak by module: data for the treemap, and the same as a table."""

from __future__ import annotations

from typing import Any

from ..simulate import History
from ._categories import LABELS
from ._curve import CATEGORIES
from ._html_words import embedded_json, escape, share, size, table
from ._modules import Module, module_tree

__all__ = ["treemap"]

_ROWS = 60


def treemap(history: History) -> str:
    tree = module_tree(history)
    rows = [
        (
            f'<code style="padding-left:{1.2 * level:.1f}em">{escape(path)}</code>',
            size(module.total),
            share(module.total, tree.total),
            escape(_largest(module)),
        )
        for level, path, module in list(tree.walk(3))[:_ROWS]
    ]
    head = ("Module", "Memory", "Share of the tensors", "Mostly")
    return (
        '<figure class="modules" id="modules"><nav class="path" aria-label="Module path"></nav>'
        '<div class="map" role="group" aria-label="Modules by their memory at the peak; the table below has the same">'
        "</div><figcaption>Each tile is a module, as large as what it holds at the peak; the colours are the "
        'categories. <span class="for-screen">Choose a tile to see its parts.</span></figcaption>'
        f'<details class="astable"><summary>Modules as a table</summary>{table(head, rows, numeric=(1, 2))}</details>'
        "</figure>" + embedded_json("tree", {"parts": CATEGORIES, "root": _plain(tree)})
    )


def _largest(module: Module) -> str:
    place = max(range(len(CATEGORIES)), key=lambda number: module.bytes[number])
    return LABELS[CATEGORIES[place]]


def _plain(module: Module) -> list[Any]:
    return [module.name, module.bytes, [_plain(child) for child in module.children]]
