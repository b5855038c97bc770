"""Device buffers with reference counts, as TensorFlow's tensors share them, and the record of their lives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Phase, Trace

__all__ = ["Buffer", "Memory", "Value"]


class Buffer:
    """A block that tensors share; it dies with its last reference."""

    __slots__ = ("index", "nbytes", "references")

    def __init__(self, index: int, nbytes: int) -> None:
        self.index = index
        """In `Trace.allocations`; -1 for memory that is not the device's."""
        self.nbytes = nbytes
        self.references = 0


@dataclass(slots=True)
class Value:
    """A tensor without its elements: shape, dtype, and the buffer it lies in."""

    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    buffer: Buffer | None = None
    """None where there is nothing to hold: resources, control signals, empty tensors."""
    known: Any = None
    """The elements (a numpy array), where they are few and follow from shapes and constants."""
    payload: Any = None
    """A resource's variable, or the elements of a tensor list."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * self.itemsize


@dataclass(slots=True)
class _Born:
    nbytes: int
    phase: Phase
    step: int
    operator: str
    module: str
    shape: tuple[int, ...]
    dtype: str
    category: Category


class Memory:
    """Writes the Trace: a buffer is allocated when it is made and freed when nothing refers to it any more."""

    def __init__(self) -> None:
        self.phase = Phase.BUILD
        self.step = -1
        self.birth = Phase.BUILD
        """Whose memory is being made: in a graph, parts of the step overlap."""
        self._born: list[_Born] = []
        self._alive: dict[int, Buffer] = {}
        self._events: list[Event] = []
        self._kernels: dict[KernelCall, int] = {}
        self._marks = [Mark(0, Phase.BUILD, -1)]

    def enter(self, phase: Phase, step: int) -> None:
        if (phase, step) != (self.phase, self.step):
            self.phase, self.step, self.birth = phase, step, phase
            self._marks.append(Mark(len(self._events), phase, step))

    def begin_backward(self) -> None:
        """What the forward pass left alive is an activation."""
        for buffer in self._alive.values():
            if self._born[buffer.index].category is Category.TEMPORARY:
                self._born[buffer.index].category = Category.ACTIVATION
        self.enter(Phase.BACKWARD, self.step)

    def new(
        self,
        shape: tuple[int, ...],
        dtype: str,
        itemsize: int,
        operator: str,
        module: str,
        category: Category = Category.TEMPORARY,
    ) -> Buffer | None:
        """A buffer for such a tensor, without a reference yet; None for an empty one."""
        nbytes = math.prod(shape) * itemsize
        if nbytes == 0:
            return None
        self._born.append(_Born(nbytes, self.birth, self.step, operator, module, shape, dtype, category))
        index = len(self._born) - 1
        self._events.append(Event(EventKind.ALLOCATE, index))
        buffer = self._alive[index] = Buffer(index, nbytes)
        return buffer

    def hold(self, value: Value) -> None:
        """One more reference: to the tensor's buffer, and to the elements of a list."""
        if value.buffer is not None:
            value.buffer.references += 1
        if isinstance(value.payload, ListStorage):
            value.payload.references += 1

    def drop(self, value: Value) -> None:
        if isinstance(value.payload, ListStorage):
            storage = value.payload
            storage.references -= 1
            if storage.references == 0:
                for element in storage.elements:
                    if element is not None:
                        self.drop(element)
        buffer = value.buffer
        if buffer is None:
            return
        buffer.references -= 1
        if buffer.references == 0:
            self.free(buffer)

    def free(self, buffer: Buffer) -> None:
        if buffer.index >= 0:
            self._events.append(Event(EventKind.FREE, buffer.index))
            del self._alive[buffer.index]

    def relabel(self, buffer: Buffer, category: Category) -> None:
        """What a buffer is for is often known only when it is used; a variable's stays a variable's."""
        if self._born[buffer.index].category in (Category.TEMPORARY, Category.ACTIVATION):
            self._born[buffer.index].category = category

    def phase_of(self, buffer: Buffer) -> Phase:
        return self._born[buffer.index].phase

    def kernel(self, call: KernelCall) -> None:
        self._events.append(Event(EventKind.KERNEL, self._kernels.setdefault(call, len(self._kernels))))

    def trace(self, **facts: Any) -> Trace:
        return Trace(
            allocations=tuple(
                Allocation(b.nbytes, b.category, b.phase, b.step, b.operator, b.module, "", b.shape, b.dtype)
                for b in self._born
            ),
            events=tuple(self._events),
            kernels=tuple(self._kernels),
            marks=tuple(self._marks),
            **facts,
        )


@dataclass(slots=True)
class ListStorage:
    """The elements of a tensor list, each held by it; lists that were not changed share theirs."""

    elements: list[Value | None]
    references: int = 0
