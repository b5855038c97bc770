"""What `torch.backends.cudnn.benchmark` adds to a trace.

The first time a convolution is met, torch allocates one block for the largest workspace among all plans, times each
plan, frees the block, releases the allocator's whole cache, and then runs the fastest plan, which it keeps. nvidia-smi
sees that block. Which plan is fastest cannot be known without the GPU: the heuristic's first choice is taken for it,
since that is what the heuristic predicts.
"""

from __future__ import annotations

import bisect
import dataclasses

from ...trace import Event, EventKind, KernelCall, Mark, Phase, Trace
from .query import KINDS

__all__ = ["TRIAL", "has_batch_norm", "has_convolutions", "with_benchmark"]

TRIAL = "cudnn_benchmark_trial"
"""The attribute of a call that stands for the timing runs."""


def has_convolutions(trace: Trace) -> bool:
    """Whether the job loads cuDNN for a convolution."""
    return any(call.operator in KINDS for call in trace.kernels)


def has_batch_norm(trace: Trace) -> bool:
    """Whether the job loads cuDNN's library of normalizations."""
    return any("batch_norm" in allocation.operator for allocation in trace.allocations)


def with_benchmark(trace: Trace) -> Trace:
    """The trace with the timing runs in it: before the first run of each convolution, a trial and an empty cache.

    torch keeps its choices by thread; backward runs in its own.
    """
    kernels = list(trace.kernels)
    trials: dict[int, int] = {}
    events: list[Event] = []
    starts: list[int] = []
    met: set[tuple[int, bool]] = set()
    positions = [mark.position for mark in trace.marks]
    for position, event in enumerate(trace.events):
        starts.append(len(events))
        if event.kind == EventKind.KERNEL and trace.kernels[event.index].operator in KINDS:
            mark = bisect.bisect_right(positions, position) - 1
            key = (event.index, mark >= 0 and trace.marks[mark].phase is Phase.BACKWARD)
            if key not in met:
                met.add(key)
                if event.index not in trials:
                    trials[event.index] = len(kernels)
                    kernels.append(_trial(trace.kernels[event.index]))
                events.append(Event(EventKind.KERNEL, trials[event.index]))
                events.append(Event(EventKind.EMPTY_CACHE, 0))
        events.append(event)
    starts.append(len(events))
    marks = tuple(Mark(starts[mark.position], mark.phase, mark.step) for mark in trace.marks)
    return dataclasses.replace(trace, kernels=tuple(kernels), events=tuple(events), marks=marks)


def _trial(call: KernelCall) -> KernelCall:
    return dataclasses.replace(call, attributes=(*call.attributes, (TRIAL, True)))
