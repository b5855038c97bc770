"""How the parts of a breakdown are called, and their colours: the same in every report, in the order of stacks."""

from __future__ import annotations

__all__ = ["COLOURS", "LABELS", "colour", "label"]

LABELS = {
    "parameter": "Parameter",
    "buffer": "Buffer",
    "gradient": "Gradient",
    "optimizer_state": "Optstate",
    "input": "Input",
    "activation": "Activation",
    "temporary": "Temp",
    "workspace": "Workspace",
    "calibrated": "Calibrated",
    "allocator_cache": "Allocator cache",
    "context": "CUDA context",
    "rounding": "Rounded up",
    "gap": "Gap (real runs)",
    "class": "Class (learned)",
    "learned": "Learned residual",
}

_LEARNT = "#9d6642"
COLOURS = {
    "parameter": "#326dec",
    "buffer": "#a0a9ff",
    "gradient": "#e39002",
    "optimizer_state": "#c24e10",
    "input": "#ecd76d",
    "activation": "#12d08c",
    "temporary": "#bd90ac",
    "workspace": "#2f4f74",
    "allocator_cache": "#d9e8e4",
    "context": "#6c625d",
    # No estimate has two of these.
    "calibrated": _LEARNT,
    "rounding": _LEARNT,
    "gap": _LEARNT,
    "class": _LEARNT,
    "learned": _LEARNT,
}
"""Found by search so that any two differ, to normal sight and to all three kinds of colour blindness."""


def label(part: str) -> str:
    return LABELS.get(part, part)


def colour(part: str) -> str:
    return COLOURS.get(part, _LEARNT)
