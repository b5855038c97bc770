"""The parts of an estimate's page, each as a piece of HTML, in the order of the page.

The device as a bar with its breakdown, the peak by module, the largest tensors, the phases, and what stands behind the
figures. The timeline has a file of its own (`page_timeline`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..estimation import Estimate
from ..simulate import History
from ..units import format_bytes
from .curve import CATEGORIES, parts_of
from .page_words import embedded_json, escape, key, share, size, source, table
from .words import LABELS, interval_words, shape_words

__all__ = [
    "Module",
    "breakdown_table",
    "facts",
    "gauge",
    "largest_tensors",
    "module_tree",
    "notes",
    "phase_table",
    "treemap",
]


def gauge(estimate: Estimate) -> str:
    """Bar, interval and capacity on one scale; the text beneath says the same."""
    scale = max(estimate.device_usable, estimate.high, estimate.device_total, 1) * 1.01
    words = (
        f"{format_bytes(estimate.device_total)} of {format_bytes(estimate.device_usable)} usable; "
        f"interval {format_bytes(estimate.low)} to {format_bytes(estimate.high)}"
    )
    full = _percent(estimate.device_usable, scale)
    return (
        f'<div class="gauge" role="img" aria-label="{escape(words)}">'
        f'<div class="device"><div class="room" style="width:{full}"></div>{"".join(_segments(estimate, scale))}'
        f'<div class="limit" style="left:{full}"></div></div>'
        f'<div class="range"><div class="whisker" style="left:{_percent(estimate.low, scale)};'
        f'width:max(10px,{_percent(estimate.high - estimate.low, scale)})"></div>'
        f'<div class="middle" style="left:{_percent(estimate.device_total, scale)}"></div></div></div>'
    )


def breakdown_table(estimate: Estimate) -> str:
    """Sums to the device total."""
    total = estimate.device_total
    rows = [(key(part), size(nbytes), share(nbytes, total)) for part, nbytes in parts_of(estimate)]
    rows += [
        ("Allocated by tensors", size(estimate.peak_allocated), share(estimate.peak_allocated, total)),
        ("Reserved by the allocator", size(estimate.peak_reserved), share(estimate.peak_reserved, total)),
        ("<b>Device total</b>", f"<b>{size(total)}</b>", "<b>100.0%</b>"),
    ]
    return table(("At the peak", "Memory", "Share"), rows, numeric=(1, 2), kind="breakdown")


def facts(estimate: Estimate) -> str:
    """The same in words and numbers."""
    return (
        '<ul class="facts">'
        f"<li><b>{size(estimate.device_total)}</b> device total</li>"
        f"<li><b>{size(estimate.device_usable)}</b> usable on {escape(estimate.device)}</li>"
        f"<li><b>{size(estimate.low)}</b> to <b>{size(estimate.high)}</b> {100 * estimate.coverage:.4g}% interval</li>"
        f"<li><b>{size(estimate.will_not_exceed)}</b> not exceeded, {100 * estimate.coverage:.4g}% sure</li>"
        f"<li><b>{size(estimate.least_capacity)}</b> least that runs it</li>"
        "</ul>"
    )


def _segments(estimate: Estimate, scale: float) -> Iterator[str]:
    start = 0
    for part, nbytes in parts_of(estimate):
        # A learned residual can be below zero: the bar then ends where the others do.
        if nbytes > 0:
            place = f"left:{_percent(start, scale)};width:{_percent(nbytes, scale)}"
            yield f'<div class="segment part-{escape(part)}" style="{place}"></div>'
            start += nbytes


def _percent(nbytes: int, scale: float) -> str:
    return f"{100 * nbytes / scale:.3f}%"


_LEAST_SHARE = 0.0005
_OUTSIDE = "outside of any module"


@dataclass
class Module:
    name: str
    bytes: list[int] = field(default_factory=lambda: [0] * len(CATEGORIES))
    """By category, those of its children included."""
    children: list[Module] = field(default_factory=list)
    """Largest first; what is no child's is the module's own."""

    @property
    def total(self) -> int:
        return sum(self.bytes)

    def walk(self, depth: int) -> Iterator[tuple[int, str, Module]]:
        """Down to `depth`, with the level and the dotted path; the root itself is left out."""
        return self._below(0, "", depth)

    def _below(self, level: int, path: str, depth: int) -> Iterator[tuple[int, str, Module]]:
        if level == depth:
            return
        for child in self.children:
            whole = f"{path}.{child.name}" if path else child.name
            yield level, whole, child
            yield from child._below(level + 1, whole, depth)


def module_tree(history: History) -> Module:
    """Small siblings are put together, and a module with only one child is joined with it."""
    root = Module("")
    known: dict[tuple[str, ...], Module] = {(): root}
    for action in history.live_at_peak():
        module = "" if action.allocation is None else history.trace.allocations[action.allocation].module
        path = tuple(module.split(".")) if module else (_OUTSIDE,)
        place = CATEGORIES.index(history.category_of(action).value)
        for length in range(len(path) + 1):
            key = path[:length]
            if key not in known:
                known[key] = Module(path[length - 1])
                known[key[:-1]].children.append(known[key])
            known[key].bytes[place] += action.size
    return _tidy(root, int(root.total * _LEAST_SHARE))


def _tidy(module: Module, least: int) -> Module:
    children = sorted((_tidy(child, least) for child in module.children), key=lambda child: -child.total)
    large = [child for child in children if child.total > least]
    small = children[len(large) :]
    if len(small) == 1:
        large += small
    elif small:
        sums = [sum(child.bytes[place] for child in small) for place in range(len(CATEGORIES))]
        large.append(Module(f"{len(small)} smaller ones", sums))
    if module.name and len(large) == 1 and large[0].total == module.total and not small:
        return Module(f"{module.name}.{large[0].name}", module.bytes, large[0].children)
    return Module(module.name, module.bytes, large)


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


_TENSORS = 100


def largest_tensors(estimate: Estimate) -> str:
    """The hundred largest where the history is known, else those of the Estimate; sortable by every column."""
    head = ("Memory", "Category", "Shape", "Module", "Line", "Operator", "Made in")
    rows = (
        (
            size(nbytes),
            key(category),
            escape(shape) or "–",
            f"<code>{escape(module)}</code>" if module else "–",
            source(line),
            f"<code>{escape(operator)}</code>",
            escape(made_in) or "–",
        )
        for nbytes, category, shape, module, line, operator, made_in in _tensors(estimate)
    )
    return table(head, rows, numeric=(0,), kind="sortable tensors")


def _tensors(estimate: Estimate) -> Iterable[tuple[int, str, str, str, str, str, str]]:
    history = estimate.history
    if history is None:
        for t in estimate.top_tensors:
            yield (
                t.nbytes,
                t.category,
                shape_words(t.shape, t.dtype),
                t.module,
                t.source,
                t.operator,
                _made_in(t.phase, t.step),
            )
        return
    for action in sorted(history.live_at_peak(), key=lambda action: -action.size)[:_TENSORS]:
        if action.allocation is None:
            yield action.size, history.category_of(action).value, "", "", "", action.name, ""
        else:
            a = history.trace.allocations[action.allocation]
            shape, made_in = shape_words(a.shape, a.dtype), _made_in(a.phase.value, a.step)
            yield action.size, a.category.value, shape, a.module, a.source, a.operator, made_in


def _made_in(phase: str, step: int) -> str:
    return f"{phase}, step {step + 1}" if step >= 0 else phase


def phase_table(estimate: Estimate) -> str:
    rows = (
        (str(step + 1) if step >= 0 else "–", escape(phase.replace("_", " ")), size(allocated), size(reserved))
        for step, phase, allocated, reserved in estimate.phase_peaks
    )
    return table(("Step", "Phase", "Allocated", "Reserved"), rows, numeric=(2, 3))


def notes(estimate: Estimate) -> str:
    parts = []
    if estimate.unsupported:
        met = sorted(estimate.unsupported.items())
        listed = "".join(f"<li>{escape(name)}, {count} {'time' if count == 1 else 'times'}</li>" for name, count in met)
        parts.append(f"<h3>Met and not modelled</h3><ul>{listed}</ul>")
    else:
        parts.append("<h3>Met and not modelled</h3><p>Nothing.</p>")
    if estimate.assumptions:
        listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in estimate.assumptions)
        parts.append(f"<h3>Assumed</h3><ul>{listed}</ul>")
    parts.append(f"<h3>The job</h3>{_pairs(estimate.workload)}")
    how = {**estimate.provenance, "interval": interval_words(estimate), "seconds": estimate.seconds}
    parts.append(f"<h3>How this was found</h3>{_pairs(how)}")
    return "".join(parts)


def _pairs(told: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<dt>{escape(str(name).replace('_', ' '))}</dt><dd>{_value(value)}</dd>"
        for name, value in told.items()
        if value is not None and value != [] and value != {}
    )
    return f"<dl>{rows}</dl>"


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return escape(", ".join(f"{name} {item}" for name, item in value.items()))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return "; ".join(_value(item) for item in value)
    return escape(str(value))
