"""What the simulated Timeline of a job tells a learner, the same figures for every model: bytes."""

from __future__ import annotations

from ..trace import Category, Trace
from ._static_value import CPU, live_peak

__all__ = ["TRACE_FEATURES", "trace_features"]

TRACE_FEATURES = {
    "tensors": "all tensors at the peak",
    "parameters": "parameters",
    "states": "gradients, buffers and optimizer state at the peak",
    "activations": "activations and temporaries at the peak",
    "largest": "the largest tensor",
    "workspace": "kernels' workspace at the peak",
}
_STATES = (Category.GRADIENT, Category.BUFFER, Category.OPTIMIZER_STATE)
_ACTIVATIONS = (Category.ACTIVATION, Category.TEMPORARY, Category.INPUT)


def trace_features(trace: Trace, device: str) -> dict[str, float]:
    """By the names of `TRACE_FEATURES`. On a CPU no kernel's workspace is simulated, so that figure is 0 there."""
    live = live_peak(trace)
    parameters = sum(made.nbytes for made in trace.allocations if made.category is Category.PARAMETER)
    return {
        "tensors": float(sum(live.values())),
        "parameters": float(parameters),
        "states": float(sum(live[category] for category in _STATES)),
        "activations": float(sum(live[category] for category in _ACTIVATIONS)),
        "largest": float(max((made.nbytes for made in trace.allocations), default=0)),
        "workspace": 0.0 if device == CPU else float(_workspace(trace, device)),
    }


def _workspace(trace: Trace, device: str) -> int:
    from ._estimators import Target
    from ._simulator import Simulation

    return Simulation(trace, Target.create(device)).run().breakdown.get(Category.WORKSPACE.value, 0)
