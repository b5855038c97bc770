"""What simple estimators look at, counted in a Trace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from oomcast.trace import Category, EventKind, Phase, Trace

__all__ = ["MOST_STEM_CONVOLUTIONS", "Features", "ModelKind", "features_of", "kind_of"]

ModelKind = Literal["transformer", "convolutional", "hybrid", "other"]
MOST_STEM_CONVOLUTIONS = 3
"""As many convolutions cut images into patches: a model with no more of them is not convolutional."""

_ITEMSIZE = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2}
_PASSES = (Phase.FORWARD, Phase.BACKWARD)
_NOT_ACTIVATIONS = (Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE)


@dataclass(frozen=True)
class Features:
    """Bytes, and numbers of values."""

    parameters: int
    """How many numbers."""
    parameter_bytes: int
    outputs: int
    """Values that operators of the first forward pass wrote to memory of their own."""
    kept: int
    """Bytes alive at the end of the first forward pass, beside parameters, gradients and optimizer state."""
    operator_peak: int
    """The highest bytes alive at once among those that operators of forward and backward made."""
    convolutions: int = 0
    """How many the first forward pass runs."""
    attentions: int = 0
    """Attention kernels and batched products of the first forward pass."""
    buffer_bytes: int = 0


def kind_of(features: Features) -> ModelKind:
    """By what the model runs, not by its name."""
    convolutional = features.convolutions > MOST_STEM_CONVOLUTIONS
    if features.attentions:
        return "hybrid" if convolutional else "transformer"
    return "convolutional" if convolutional else "other"


def features_of(trace: Trace) -> Features:
    parameters = [a for a in trace.allocations if a.category is Category.PARAMETER]
    first = [a for a in trace.allocations if a.phase is Phase.FORWARD and a.step == 0]
    return Features(
        parameters=sum(a.nbytes // _ITEMSIZE.get(a.dtype, 4) for a in parameters),
        parameter_bytes=sum(a.nbytes for a in parameters),
        outputs=sum(a.nbytes // _ITEMSIZE.get(a.dtype, 4) for a in first),
        kept=_alive_after_forward(trace),
        operator_peak=_operator_peak(trace),
        convolutions=sum(a.operator.startswith("aten.convolution") for a in first),
        buffer_bytes=sum(a.nbytes for a in trace.allocations if a.category is Category.BUFFER),
        attentions=sum("scaled_dot_product" in a.operator or "bmm" in a.operator for a in first),
    )


def _alive_after_forward(trace: Trace) -> int:
    end = next((mark.position for mark in trace.marks if mark.phase is Phase.BACKWARD and mark.step == 0), None)
    alive: set[int] = set()
    for kind, index in trace.events[:end]:
        if kind == EventKind.ALLOCATE and trace.allocations[index].category not in _NOT_ACTIVATIONS:
            alive.add(index)
        elif kind == EventKind.FREE:
            alive.discard(index)
    return sum(trace.allocations[index].nbytes for index in alive)


def _operator_peak(trace: Trace) -> int:
    live = peak = 0
    for kind, index in trace.events:
        if kind not in (EventKind.ALLOCATE, EventKind.FREE):
            continue
        made = trace.allocations[index]
        if made.phase not in _PASSES or made.step > 0:
            continue
        live += made.nbytes if kind == EventKind.ALLOCATE else -made.nbytes
        peak = max(peak, live)
    return peak
