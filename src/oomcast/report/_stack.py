"""A run as bands that lie on each other, from the context up to what the allocator keeps: they sum to the device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..estimate import Estimate
from ._curve import CATEGORIES, Curve

__all__ = ["Band", "Stack", "parts_of", "stack_of"]

_BOTTOM_UP = (
    "context",
    "calibrated",
    "parameter",
    "buffer",
    "optimizer_state",
    "gradient",
    "input",
    "activation",
    "temporary",
    "workspace",
    "allocator_cache",
)
"""What lasts lies below what comes and goes."""


@dataclass(frozen=True, slots=True)
class Band:
    part: str
    values: Sequence[int]
    """Bytes, one for each column of the curve."""
    tops: Sequence[int]
    """The same with all that lies below it."""


@dataclass(frozen=True, slots=True)
class Stack:
    """Bands from the bottom up, without those that are never there."""

    bands: tuple[Band, ...]
    top: int
    """The highest of all."""


def stack_of(estimate: Estimate, curve: Curve) -> Stack:
    """What the simulation does not see (context, calibration) is the same all the time."""
    columns, breakdown = curve.columns, estimate.breakdown
    context, calibrated = breakdown.get("context", 0), breakdown.get("calibrated", 0)
    peak_allocated = max((column.allocated for column in columns), default=0)
    reserved = peak_allocated + calibrated + breakdown.get("allocator_cache", 0)
    missed = reserved - max((column.reserved for column in columns), default=0)
    values = {
        "context": [context] * len(columns),
        "calibrated": [calibrated] * len(columns),
        **{name: [column.bytes[place] for column in columns] for place, name in enumerate(CATEGORIES)},
        "allocator_cache": [max(c.reserved + missed - c.allocated - calibrated, 0) for c in columns],
    }
    bands = []
    tops = [0] * len(columns)
    for part in _BOTTOM_UP:
        if any(values[part]):
            tops = [below + value for below, value in zip(tops, values[part], strict=True)]
            bands.append(Band(part, values[part], tops))
    return Stack(tuple(bands), max(tops, default=0))


def parts_of(estimate: Estimate) -> list[tuple[str, int]]:
    """The parts of the breakdown that are there, in the order of the stack, then those that no stack knows."""
    order = {part: place for place, part in enumerate(_BOTTOM_UP)}
    present = [(part, nbytes) for part, nbytes in estimate.breakdown.items() if nbytes]
    return sorted(present, key=lambda item: order.get(item[0], len(order)))
