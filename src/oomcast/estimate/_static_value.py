"""SGV: what a template's network holds by its trace alone, whatever framework will run it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..capture import capture
from ..design import Value
from ..devices import find_gpu
from ..simulate import Timeline, WorkspaceTable, simulate
from ..trace import Category, EventKind, Trace
from ..workload import Workload
from ._estimators import Target
from ._simulator import estimate_trace

__all__ = ["CPU", "VIRTUAL_GPU", "StaticValue", "case_trace", "cpu_timeline", "live_peak", "static_value"]

CPU = "cpu"
VIRTUAL_GPU = "a100-40gb"
"""Tensors are the same on every device; one must be named to run on."""
_TIME_LIMIT = 300.0


@dataclass(frozen=True)
class StaticValue:
    """Figures of one case that need no run; bytes."""

    total: int
    """SGV itself: on a CPU the most that tensors hold at a time, on a GPU the simulator's device total."""
    parameters: int
    largest: int
    """The largest single tensor: kernels' scratch space grows with it."""

    def as_dict(self) -> dict[str, int]:
        return {"total": self.total, "parameters": self.parameters, "largest": self.largest}


def case_trace(template: str, parameters: Mapping[str, Value], steps: int, device: str = CPU) -> Trace:
    """The trace of the network that a case trains, rendered for PyTorch also where Keras will run it."""
    from ..design.templates import TEMPLATES, render

    source = render(TEMPLATES[template].network(parameters), "torch", steps=steps)
    gpu = find_gpu(VIRTUAL_GPU if device == CPU else device)
    with tempfile.TemporaryDirectory(prefix="oomcast-") as folder:
        file = Path(folder) / f"{template}.py"
        file.write_text(source, encoding="utf-8")
        workload = Workload.create(file, batch_size=parameters["batch_size"], steps=steps)
        return capture(workload, gpu, _TIME_LIMIT)


def static_value(trace: Trace, device: str = CPU) -> StaticValue:
    """`device`: `cpu` or a GPU of the catalogue."""
    total = sum(live_peak(trace).values())
    if device != CPU:
        total = estimate_trace(trace, Target.create(device)).device_total
    kept = [made for made in trace.allocations if made.category is Category.PARAMETER]
    return StaticValue(
        total=total,
        parameters=sum(made.nbytes for made in kept),
        largest=max((made.nbytes for made in trace.allocations), default=0),
    )


def live_peak(trace: Trace) -> dict[Category, int]:
    """The most that tensors hold at a time, by category: what they ask for, without CUDA's rounding or workspaces."""
    live = dict.fromkeys(Category, 0)
    total = highest = 0
    peak = dict(live)
    for kind, index in trace.events:
        if kind not in (EventKind.ALLOCATE, EventKind.FREE):
            continue
        made = trace.allocations[index]
        change = made.nbytes if kind is EventKind.ALLOCATE else -made.nbytes
        live[made.category] += change
        total += change
        if total > highest:
            highest, peak = total, dict(live)
    return peak


def cpu_timeline(trace: Trace) -> Timeline:
    """When and where tensors hold most, without cuBLAS's and cuDNN's workspaces, which are not a CPU's."""
    return simulate(trace, workspace=WorkspaceTable(rules={}))
