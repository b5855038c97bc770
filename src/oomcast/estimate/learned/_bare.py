"""The simulated allocator once more, without what convolutions borrow: how much do their workspaces decide?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...simulate import DeviceFacts, WorkspaceTable, simulate
from ...simulate.cudnn import has_convolutions
from ...trace import Trace

if TYPE_CHECKING:
    from .._estimators import Target

__all__ = ["reserved_without_workspaces"]


def reserved_without_workspaces(trace: Trace, target: Target) -> int | None:
    """Peak reserved bytes on a device without end; None for a job without convolutions, where nothing changes."""
    if not has_convolutions(trace):
        return None
    facts = DeviceFacts(target.gpu.compute_capability, target.stack.torch_from)
    timeline = simulate(
        trace, settings=target.settings, workspace=WorkspaceTable(facts), device_total=target.gpu.total_memory
    )
    return timeline.peak_reserved
