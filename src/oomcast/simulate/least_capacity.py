"""The least memory that a job still runs with: less than it reserves where nothing limits it, since a full device
releases its cache and tries again.

It is found by trials on devices of different sizes. They all begin alike: until one of them is refused something, an
allocator does not know how large its device is. So what comes before the first refusal is run once, for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

from ..trace import Trace, verify
from .allocators import Settings, new_allocator
from .caching_allocator import CachingAllocator, FirstRefusal
from .program import Program, compile_trace
from .settings import SMALL_SEGMENT
from .timeline import Run, Timeline
from .workspace import Workspace, WorkspaceTable

__all__ = ["least_capacity", "least_capacity_of"]


def least_capacity(
    trace: Trace,
    *,
    settings: Settings | None = None,
    workspace: Workspace | None = None,
    device_total: int | None = None,
) -> int:
    """Bytes the allocator needs at least, to 2 MiB: the job runs with them, and does not with 2 MiB less.

    A full device releases its cache and tries again before it fails, so the answer lies between the peak of the
    allocated bytes and that of the reserved ones. More memory than the answer is enough too, save for rare traces
    whose fragmentation it happens to worsen; from the peak of the reserved bytes on it always is.
    """
    verify(trace)
    program = compile_trace(trace, workspace or WorkspaceTable())
    return least_capacity_of(program, settings=settings, device_total=device_total)


def least_capacity_of(
    program: Program,
    *,
    settings: Settings | None = None,
    device_total: int | None = None,
    endless: Timeline | None = None,
) -> int:
    """`least_capacity`, for a trace that was compiled before; `endless`: what it did where nothing limited it."""
    if endless is None:
        free_run = Run(program, new_allocator(settings, device_total=device_total))
        enough = max((free_run.span(span).reserved for span in program.spans), default=0)
        peak_allocated = free_run.peak_allocated
    else:
        enough, peak_allocated = endless.peak_reserved, endless.peak_allocated
    step = SMALL_SEGMENT
    # Below the allocated peak nothing can run, so one step under it is known to fail.
    too_little = -(-peak_allocated // step) * step - step
    trials = _Trials(program, settings, device_total)
    while enough - too_little > step:
        middle = (too_little + (enough - too_little) // 2) // step * step
        if middle <= too_little:
            middle = too_little + step
        if trials.runs(middle, more_than=too_little):
            enough = middle
        else:
            too_little = middle
    return enough


class _Trial(NamedTuple):
    """A run on a device of one size; on all sizes from `least` to `most` it would have been the same, step by step."""

    runs: bool
    least: int
    most: int


class _Trials:
    """Runs of one program on devices of different sizes, none of which is less than the largest that was too little."""

    def __init__(self, program: Program, settings: Settings | None, device_total: int | None) -> None:
        self._program, self._settings, self._device_total = program, settings, device_total
        self._known: list[_Trial] = []
        self._begun: _Beginning | None = None
        # Without a device's total, the address space of expandable segments depends on the capacity, too.
        allocator = new_allocator(settings, capacity=0, device_total=device_total)
        if device_total is not None and isinstance(allocator, CachingAllocator) and allocator.refuses_before_it_acts:
            self._begun = _Beginning(program, allocator)

    def runs(self, capacity: int, more_than: int) -> bool:
        """`more_than`: all sizes that will be asked about are larger."""
        trial = next((one for one in self._known if one.least <= capacity <= one.most), None)
        if trial is None:
            trial = self._tried(capacity, more_than)
            self._known.append(trial)
        return trial.runs

    def _tried(self, capacity: int, more_than: int) -> _Trial:
        """torch's allocator looks at its capacity only when it asks the device for more. A device that is smaller, but
        not than what this run reserved, gives and refuses the same; so does a larger one, up to what was refused
        here."""
        program = self._program
        if self._begun is not None:
            self._begun.goes_on_to(more_than + SMALL_SEGMENT)
            run, first, begin = self._begun.continued(capacity)
            reserved = self._begun.reserved
        else:
            allocator = new_allocator(self._settings, capacity=capacity, device_total=self._device_total)
            run, first, begin, reserved = Run(program, allocator), 0, 0, 0
        for span in program.spans[first:]:
            reserved = max(reserved, run.span(span, begin).reserved)
            begin = 0
            if run.failure is not None:
                break
        allocator, runs = run.allocator, run.failure is None
        if not isinstance(allocator, CachingAllocator) or self._device_total is None:
            return _Trial(runs, capacity, capacity)
        return _Trial(runs, reserved, allocator.least_refused - 1)


class _Beginning:
    """What runs on devices from some size on have in common: everything before the smallest of them refuses."""

    def __init__(self, program: Program, allocator: CachingAllocator) -> None:
        self._program, self._allocator = program, allocator
        allocator.stops_at_refusal = True
        self._run = Run(program, allocator)
        self._span = self._done = 0
        """The span that is under way, and how many of its instructions are done."""
        self.reserved = 0
        """The most so far, in the spans that are done."""

    def goes_on_to(self, capacity: int) -> None:
        """As far as a device of this size gives what it is asked for."""
        self._allocator.capacity = capacity
        spans = self._program.spans
        while self._span < len(spans):
            span = spans[self._span]
            try:
                peak = self._run.span(span, self._done)
            except FirstRefusal:
                self._done = self._run.done
                return
            self.reserved = max(self.reserved, peak.reserved)
            self._span, self._done = self._span + 1, 0

    def continued(self, capacity: int) -> tuple[Run, int, int]:
        """A run on a device of this size, the span that it is in, and which instruction of it comes next."""
        allocator, blocks = self._allocator.copied(capacity)
        return self._run.goes_on_with(allocator, blocks), self._span, self._done
