"""Memory that kernels take and no tensor shows: a table from operator to rule.

A rule that exists may answer "nothing"; an operator without a rule answers None, and is counted and shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ..trace import KernelCall, Phase
from ..units import KiB, MiB

__all__ = [
    "CUBLAS_RULES",
    "NOTHING",
    "DeviceFacts",
    "Persistent",
    "Rule",
    "Transient",
    "Workspace",
    "WorkspaceTable",
    "cublas_workspace",
    "cublas_workspace_size",
]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What rules ask about the target."""

    compute_capability: tuple[int, int] = (8, 0)
    torch_version: tuple[int, int] = (2, 13)
    cublas_workspace: str | None = None
    """CUBLAS_WORKSPACE_CONFIG of the process, where it is set: deterministic jobs must set it."""


@dataclass(frozen=True, slots=True)
class Transient:
    """Allocated when the kernel is called and freed at once.

    The first size of `alternatives` that can be allocated is taken, as cuDNN's plans are tried in order; it may be 0.
    """

    alternatives: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Persistent:
    """Allocated at the first call with this key, kept to the end."""

    key: str
    nbytes: int


NOTHING = Transient(())
"""The kernel is known to take no workspace."""

Need = Persistent | Transient
Rule = Callable[[KernelCall, Phase, DeviceFacts], Need | None]


class Workspace(Protocol):
    """What the simulation asks at every kernel; None is "no rule for this one"."""

    def __call__(self, call: KernelCall, phase: Phase, /) -> Need | None: ...


# What reaches cuBLAS in the end; `linear` and `matmul` are named for captures that keep them whole.
_MATMULS = (
    "aten._addmm_activation",
    "aten._scaled_mm",
    "aten.addbmm",
    "aten.addmm",
    "aten.addmv",
    "aten.addr",
    "aten.baddbmm",
    "aten.bmm",
    "aten.dot",
    "aten.linear",
    "aten.matmul",
    "aten.mm",
    "aten.mv",
    "aten.vdot",
)


_SIZE_AND_COUNT = re.compile(r":([0-9]{1,9}):([0-9]{1,9})")


def cublas_workspace_size(device: DeviceFacts) -> int:
    """Bytes torch gives a cuBLAS handle: `:4096:2:16:8`, or 32 MiB on Hopper and, from torch 2.12, on Blackwell.

    What the process is told goes first, in pairs of KiB and a count; words that are no pairs mean the default, as in
    torch's `parseChosenWorkspaceSize` (aten/src/ATen/cuda/CublasHandlePool.cpp).
    """
    pairs = _SIZE_AND_COUNT.findall(device.cublas_workspace or "")
    if pairs:
        return sum(int(size) * int(count) for size, count in pairs) * KiB
    major, _ = device.compute_capability
    if major == 9 or (major >= 10 and device.torch_version >= (2, 12)):
        return 32 * MiB
    return 2 * 4096 * KiB + 8 * 16 * KiB


def cublas_workspace(call: KernelCall, phase: Phase, device: DeviceFacts) -> Need:
    """One block per cuBLAS handle and stream. Handles belong to threads, and autograd runs backward in its own."""
    thread = "autograd thread" if phase is Phase.BACKWARD else "main thread"
    return Persistent(f"cuBLAS, {thread}", cublas_workspace_size(device))


CUBLAS_RULES: Mapping[str, Rule] = dict.fromkeys(_MATMULS, cublas_workspace)


@dataclass(frozen=True)
class WorkspaceTable:
    """The rules by operator, for one target."""

    device: DeviceFacts = field(default_factory=DeviceFacts)
    rules: Mapping[str, Rule] = field(default_factory=lambda: CUBLAS_RULES)

    def __call__(self, call: KernelCall, phase: Phase, /) -> Need | None:
        rule = self.rules.get(call.operator)
        return None if rule is None else rule(call, phase, self.device)

    def with_rules(self, rules: Mapping[str, Rule]) -> WorkspaceTable:
        """This table with more entries, or other ones for the same operators."""
        return WorkspaceTable(self.device, {**self.rules, **rules})
