"""The parts of an estimate's page, each as a piece of HTML, in the order of the page.

The device as a bar with its breakdown, the largest tensors, the phases, and what stands behind the figures. The
timeline (`page_timeline`) and the peak by module and line (`page_held`) have files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..estimation import Estimate
from ..units import format_bytes
from .curve import parts_of
from .page_words import escape, key, share, size, source, table
from .words import interval_words, shape_words

__all__ = [
    "breakdown_table",
    "facts",
    "gauge",
    "largest_tensors",
    "notes",
    "phase_table",
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
