"""A Trace in the making, for captures that decide themselves when memory is taken and given back."""

from __future__ import annotations

from typing import Any

from ..trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Phase, Trace

__all__ = ["Record", "peak_of"]


class Record:
    """Blocks are numbered in the order in which they are allocated."""

    def __init__(self) -> None:
        self.phase = Phase.BUILD
        self.step = -1
        self.live = 0
        """Bytes that are allocated now."""
        self._allocations: list[Allocation] = []
        self._events: list[Event] = []
        self._kernels: dict[KernelCall, int] = {}
        self._marks = [Mark(0, Phase.BUILD, -1)]

    def enter(self, phase: Phase, step: int) -> None:
        if (phase, step) != (self.phase, self.step):
            self.phase, self.step = phase, step
            self._marks.append(Mark(len(self._events), phase, step))

    def allocate(
        self,
        nbytes: int,
        category: Category,
        operator: str,
        module: str = "",
        source: str = "",
        shape: tuple[int, ...] = (),
        dtype: str = "",
        phase: Phase | None = None,
    ) -> int | None:
        """The number of a new block; None for one without bytes. `phase`: whose it is, where parts overlap."""
        if nbytes == 0:
            return None
        number = len(self._allocations)
        self._allocations.append(
            Allocation(nbytes, category, phase or self.phase, self.step, operator, module, source, shape, dtype)
        )
        self._events.append(Event(EventKind.ALLOCATE, number))
        self.live += nbytes
        return number

    def free(self, number: int | None) -> None:
        if number is not None:
            self._events.append(Event(EventKind.FREE, number))
            self.live -= self._allocations[number].nbytes

    def kernel(self, call: KernelCall) -> None:
        self._events.append(Event(EventKind.KERNEL, self._kernels.setdefault(call, len(self._kernels))))

    def trace(self, **facts: Any) -> Trace:
        return Trace(
            allocations=tuple(self._allocations),
            events=tuple(self._events),
            kernels=tuple(self._kernels),
            marks=tuple(self._marks),
            **facts,
        )


def peak_of(trace: Trace) -> int:
    """The highest sum of the bytes that were asked for."""
    signs = {EventKind.ALLOCATE: 1, EventKind.FREE: -1}
    live = peak = 0
    for kind, index in trace.events:
        if kind in signs:
            live += signs[kind] * trace.allocations[index].nbytes
            peak = max(peak, live)
    return peak
