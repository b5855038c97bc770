"""What a captured job tells without a run: SGV, the static estimate, and the figures that learners are given.

SGV is what the network holds by its trace alone, whatever framework will run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ...capture import capture
from ...estimation import Simulation, Target, estimate_trace
from ...simulate import Timeline, WorkspaceTable, simulate
from ...spec import Place
from ...trace import Category, EventKind, Trace
from .factors import Value

__all__ = [
    "CPU",
    "TRACE_FEATURES",
    "VIRTUAL_GPU",
    "StaticValue",
    "case_trace",
    "cpu_timeline",
    "live_peak",
    "static_value",
    "trace_features",
    "uncalibrated_target",
]

CPU = "cpu"
VIRTUAL_GPU = "a100-40gb"
"""Where jobs for a CPU are captured: tensors are the same on every device, but one must be named."""


@dataclass(frozen=True)
class StaticValue:
    """Figures of one case that need no run; bytes."""

    total: int
    """SGV itself: on a CPU the most that tensors hold at a time, on a GPU the simulator's device total."""
    parameters: int
    largest: int
    """The largest single tensor: kernels' scratch space grows with it."""

    NAMES: ClassVar[tuple[str, ...]] = ("total", "parameters", "largest")

    def as_dict(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.NAMES}


def case_trace(
    template: str, parameters: Mapping[str, Value], steps: int, device: str = CPU, graph: str = "torch"
) -> Trace:
    """The trace of what a case trains; `template` is what `find_seed` finds a seed by.

    `graph` is the framework whose graph is followed. A template can be rendered for PyTorch also where Keras runs it.
    """
    from .seeds import find_seed

    seed = find_seed(template)
    own = {parameter.name for parameter in seed.parameters}
    values = {name: value for name, value in parameters.items() if name in own}
    with seed.captured(values, graph, steps, device) as spec:
        return capture(spec)


def uncalibrated_target(device: str) -> Target:
    """A GPU as the catalogue has it: what real runs teach must not be counted twice."""
    return Target.of(Place(device, use_calibration=False))


def static_value(trace: Trace, device: str = CPU) -> StaticValue:
    """The static figures of a captured case on `device`: `cpu`, or a GPU of the catalogue."""
    total = sum(live_peak(trace, on_cpu=True).values())
    if device != CPU:
        total = estimate_trace(trace, uncalibrated_target(device)).device_total
    kept = [made for made in trace.allocations if made.category is Category.PARAMETER]
    return StaticValue(
        total=total,
        parameters=sum(made.nbytes for made in kept),
        largest=max((made.nbytes for made in trace.allocations), default=0),
    )


def live_peak(trace: Trace, *, on_cpu: bool = False) -> dict[Category, int]:
    """The most that tensors hold at a time, by category: what they ask for, without CUDA's rounding or workspaces.

    `on_cpu` leaves out what foreach kernels make for all parameters at once: no optimizer on a CPU runs them.
    """
    live = dict.fromkeys(Category, 0)
    total = highest = 0
    peak = dict(live)
    for kind, index in trace.events:
        if kind not in (EventKind.ALLOCATE, EventKind.FREE):
            continue
        made = trace.allocations[index]
        if on_cpu and made.category is Category.TEMPORARY and "_foreach_" in made.operator:
            continue
        change = made.nbytes if kind is EventKind.ALLOCATE else -made.nbytes
        live[made.category] += change
        total += change
        if total > highest:
            highest, peak = total, dict(live)
    return peak


def cpu_timeline(trace: Trace) -> Timeline:
    """When and where tensors hold most, without cuBLAS's and cuDNN's workspaces, which are not a CPU's."""
    return simulate(trace, workspace=WorkspaceTable(rules={}))


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
    return Simulation(trace, uncalibrated_target(device)).run().breakdown.get(Category.WORKSPACE.value, 0)
