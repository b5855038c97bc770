"""MXNet's scratch on a GPU: one space for all kernels, which grows to the largest need and is never given back.

A kernel that needs more than the space has frees it and takes a larger one, directly from the device. In the end there
is one block of the largest size; the simulation has it from the first kernel on.
"""

from __future__ import annotations

from ...trace import KernelCall, Phase, Trace
from ...units import MiB
from .._workspace import NOTHING, Need, Persistent, Transient, Workspace

__all__ = ["TempSpace"]

_CONVOLUTION_LIMIT = 1024 * MiB
"""The parameter `workspace` of MXNet's convolutions: faster algorithms that need more are not taken."""


class TempSpace:
    """The rules of another table, for a trace whose kernels share one space."""

    def __init__(self, trace: Trace, rules: Workspace) -> None:
        self._rules = rules
        self._size = max((_chosen(rules(call, Phase.FORWARD)) for call in trace.kernels), default=0)

    def __call__(self, call: KernelCall, phase: Phase, /) -> Need | None:
        need = self._rules(call, phase)
        if not isinstance(need, Transient):
            return need
        return Persistent("temporary space", self._size) if _chosen(need) else NOTHING


def _chosen(need: Need | None) -> int:
    if not isinstance(need, Transient):
        return 0
    return next((size for size in need.alternatives if size <= _CONVOLUTION_LIMIT), 0)
