"""Where an axis of bytes has its ticks: at whole, half or quarter powers of two times a round number."""

from __future__ import annotations

from collections.abc import Sequence

from ..units import GiB, KiB, MiB

__all__ = ["tick_words", "ticks_of_bytes"]

_MOST = 6


def ticks_of_bytes(top: int) -> list[int]:
    """From 0 up to `top`, at most seven, at 1, 2, 5, 10, 20, 50 … of the fitting unit."""
    unit = 1
    while top >= unit * KiB:
        unit *= KiB
    # Below three of a unit its steps would be too coarse: 2.5 GiB is told in halves.
    steps = [unit // 8, unit // 4, unit // 2] if unit > 1 else []
    steps += [unit * factor for factor in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)]
    step = next((step for step in steps if top // step <= _MOST), steps[-1])
    return list(range(0, top + 1, step))


def tick_words(nbytes: int, ticks: Sequence[int]) -> str:
    """All ticks of one axis have the unit of the largest."""
    unit, name = next(((u, n) for u, n in ((GiB, "GiB"), (MiB, "MiB"), (KiB, "KiB")) if ticks[-1] >= u), (1, "B"))
    return f"{nbytes / unit:g} {name}" if nbytes else "0"
