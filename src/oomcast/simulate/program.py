"""A Trace made ready to be run many times: what the kernels need is settled, and the events are flat lists."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from ..trace import Category, EventKind, Phase, Trace
from .workspace import NOTHING, Persistent, Transient, Workspace

__all__ = ["ALLOCATE", "BORROW", "EMPTY_CACHE", "FREE", "LET_GO", "Instruction", "Program", "Span", "compile_trace"]

# (position, kind, slot, nbytes, stream). The first slots are the allocations, those after them the workspaces.
Instruction = tuple[int, int, int, int, int]
ALLOCATE, FREE, BORROW, EMPTY_CACHE, LET_GO = range(5)
"""`BORROW` is a transient workspace: its slot indexes `Program.borrowed`, the sizes to try."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of events in one phase of one step."""

    phase: Phase
    step: int
    first: int
    """Position of its first event in the trace."""
    end: int
    """Position after its last event."""
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Program:
    trace: Trace
    spans: tuple[Span, ...]
    persistent: tuple[Persistent, ...]
    """Workspaces kept to the end, in the order they are first needed; their slots follow the allocations'."""
    borrowed: tuple[tuple[int, ...], ...]
    kernels_without_rule: dict[str, int]

    @property
    def slots(self) -> int:
        return len(self.trace.allocations) + len(self.persistent)

    def name_of(self, slot: int) -> str:
        """How a person would call what is in this slot."""
        known = len(self.trace.allocations)
        return self.trace.allocations[slot].operator if slot < known else self.persistent[slot - known].key

    def category_of(self, slot: int) -> Category:
        return self.trace.allocations[slot].category if slot < len(self.trace.allocations) else Category.WORKSPACE

    def kernel_at(self, position: int) -> str:
        """The operator of the kernel call at this event."""
        return self.trace.kernels[self.trace.events[position].index].operator


def compile_trace(trace: Trace, workspace: Workspace) -> Program:
    """Ask `workspace` about every kernel once per phase, and cut the events where the marks are."""
    compiler = _Compiler(trace, workspace)
    bounds = [(0, Phase.BUILD, -1)] if not trace.marks or trace.marks[0].position > 0 else []
    bounds += [(mark.position, mark.phase, mark.step) for mark in trace.marks]
    ends = [bound[0] for bound in bounds[1:]] + [len(trace.events)]
    spans = tuple(
        Span(phase, step, first, end, tuple(compiler.instructions(first, end, phase)))
        for (first, phase, step), end in zip(bounds, ends, strict=True)
    )
    return Program(
        trace=trace,
        spans=spans,
        persistent=tuple(compiler.persistent.values()),
        borrowed=tuple(compiler.borrowed),
        kernels_without_rule=dict(compiler.without_rule),
    )


class _Compiler:
    def __init__(self, trace: Trace, workspace: Workspace) -> None:
        self.trace = trace
        self.workspace = workspace
        self.persistent: dict[str, Persistent] = {}
        self.borrowed: dict[tuple[int, ...], int] = {}
        self.without_rule: Counter[str] = Counter()
        self._needs: dict[tuple[int, Phase], Persistent | Transient | None] = {}

    def instructions(self, first: int, end: int, phase: Phase) -> list[Instruction]:
        allocations = self.trace.allocations
        found: list[Instruction] = []
        # Members of an enumeration are slow to look up.
        allocate, free, let_go, kernel = EventKind.ALLOCATE, EventKind.FREE, EventKind.LET_GO, EventKind.KERNEL
        for position, (kind, index) in enumerate(self.trace.events[first:end], first):
            if kind == allocate:
                allocation = allocations[index]
                # torch never asks its allocator for an empty tensor's storage.
                if allocation.nbytes:
                    found.append((position, ALLOCATE, index, allocation.nbytes, allocation.stream))
            elif kind in (free, let_go):
                if allocations[index].nbytes:
                    found.append((position, FREE if kind == free else LET_GO, index, 0, 0))
            elif kind == kernel:
                found += self._for_kernel(position, index, phase)
            else:
                found.append((position, EMPTY_CACHE, 0, 0, 0))
        return found

    def _for_kernel(self, position: int, index: int, phase: Phase) -> list[Instruction]:
        if (index, phase) not in self._needs:
            self._needs[index, phase] = self.workspace(self.trace.kernels[index], phase)
        need = self._needs[index, phase]
        if need is None:
            self.without_rule[self.trace.kernels[index].operator] += 1
            return []
        if isinstance(need, Persistent):
            if need.key in self.persistent or not need.nbytes:
                return []
            slot = len(self.trace.allocations) + len(self.persistent)
            self.persistent[need.key] = need
            return [(position, ALLOCATE, slot, need.nbytes, 0)]
        if need == NOTHING or need.alternatives[0] == 0:
            return []
        number = self.borrowed.setdefault(need.alternatives, len(self.borrowed))
        return [(position, BORROW, number, 0, 0)]
