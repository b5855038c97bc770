"""What two captures of one job must have in common."""

from __future__ import annotations

from typing import Any

from oomcast.trace import EventKind, Trace


def contents(trace: Trace) -> tuple[Any, ...]:
    """Blocks that die between two other events die in no particular order; after the last one it does not matter."""
    events: list[Any] = []
    dying: list[int] = []
    for event in trace.events:
        if event.kind is EventKind.FREE:
            dying.append(event.index)
        else:
            events += [sorted(dying), event]
            dying = []
    return (trace.allocations, events, trace.kernels, trace.marks, trace.unsupported,
            trace.assumptions, trace.settings, trace.workload)  # fmt: skip
