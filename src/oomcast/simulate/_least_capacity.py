"""The least device memory a job still runs in, which is less than it reserves when nothing limits it."""

from __future__ import annotations

from ..trace import Trace, verify
from ._allocators import Settings, new_allocator
from ._program import Program, compile_trace
from ._settings import SMALL_SEGMENT
from ._timeline import Run
from ._workspace import Workspace, WorkspaceTable

__all__ = ["least_capacity"]


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
    free_run = Run(program, new_allocator(settings, device_total=device_total))
    enough = max((free_run.span(span).reserved for span in program.spans), default=0)
    step = SMALL_SEGMENT
    # Below the allocated peak nothing can run, so one step under it is known to fail.
    too_little = -(-free_run.peak_allocated // step) * step - step
    while enough - too_little > step:
        middle = (too_little + (enough - too_little) // 2) // step * step
        if middle <= too_little:
            middle = too_little + step
        if _runs(program, middle, settings, device_total):
            enough = middle
        else:
            too_little = middle
    return enough


def _runs(program: Program, capacity: int, settings: Settings | None, device_total: int | None) -> bool:
    run = Run(program, new_allocator(settings, capacity=capacity, device_total=device_total))
    for span in program.spans:
        run.span(span)
        if run.failure is not None:
            return False
    return True
