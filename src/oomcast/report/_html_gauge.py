"""The device as a bar: what fills it, how sure that is, and where it ends."""

from __future__ import annotations

from collections.abc import Iterator

from ..estimate import Estimate
from ..units import format_bytes
from ._html_words import escape, key, share, size, table
from ._stack import parts_of

__all__ = ["breakdown_table", "facts", "gauge"]


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
        f'width:{_percent(estimate.high - estimate.low, scale)}"></div>'
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
