"""The largest tensors, the phases, and what stands behind the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..estimate import Estimate
from ._html_words import escape, key, size, source, table
from ._words import shape_words

__all__ = ["largest_tensors", "notes", "phase_table"]

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
    parts.append(f"<h3>How this was found</h3>{_pairs({**estimate.provenance, 'seconds': estimate.seconds})}")
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
