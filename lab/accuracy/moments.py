"""What is allocated at moments of a step, where a truth file has that instead of a peak."""

from __future__ import annotations

from collections.abc import Sequence

from oomcast.estimation import Simulation, Target
from oomcast.simulate import SpanPeak
from oomcast.trace import Phase, Trace

from .cases import Measure

__all__ = ["allocated_at"]


def allocated_at(trace: Trace, target: Target, measure: Measure) -> int:
    """One of `MOMENTS`, of the last step."""
    spans = Simulation(trace, target).run().spans
    backward = max(number for number, span in enumerate(spans) if span.phase is Phase.BACKWARD)
    forward = max(number for number in range(backward) if spans[number].phase is Phase.FORWARD)
    after_backward = spans[backward].end_allocated
    if measure is Measure.STATES:
        return after_backward
    if measure is Measure.FORWARD_KEPT:
        return spans[forward].end_allocated - spans[_step_starts(spans, forward) - 1].end_allocated
    return max(span.allocated for span in spans[forward : backward + 1]) - after_backward


def _step_starts(spans: Sequence[SpanPeak], forward: int) -> int:
    """The first span of the forward: one that is interrupted has several."""
    while forward and spans[forward - 1].phase is Phase.FORWARD:
        forward -= 1
    return forward
