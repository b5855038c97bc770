"""Device buffers with reference counts, as TensorFlow's tensors share them, and the record of their lives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...trace import Category, KernelCall, Phase, Trace, TraceBuilder

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


class Memory:
    """Writes the Trace: a buffer is allocated when it is made and freed when nothing refers to it any more."""

    def __init__(self) -> None:
        self._record = TraceBuilder()
        self.birth = Phase.BUILD
        """Whose memory is being made: in a graph, parts of the step overlap."""

    @property
    def phase(self) -> Phase:
        return self._record.phase

    @property
    def step(self) -> int:
        return self._record.step

    def enter(self, phase: Phase, step: int) -> None:
        if (phase, step) != (self.phase, self.step):
            self.birth = phase
            self._record.enter(phase, step)

    def begin_backward(self) -> None:
        """What the forward pass left alive is an activation, whichever part of the graph made it."""
        for index in self._record.live():
            self._record.label(index, Category.ACTIVATION)
        self.enter(Phase.BACKWARD, self.step)

    def new(
        self,
        shape: tuple[int, ...],
        dtype: str,
        itemsize: int,
        operator: str,
        module: str,
        category: Category | None = None,
    ) -> Buffer | None:
        """A buffer for such a tensor, without a reference yet; None for an empty one."""
        nbytes = math.prod(shape) * itemsize
        index = self._record.allocate(nbytes, category, operator, module, "", shape, dtype, self.birth)
        return None if index is None else Buffer(index, nbytes)

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
            self._record.free(buffer.index)

    def relabel(self, buffer: Buffer, category: Category) -> None:
        """What a buffer is for is often known only when it is used; a variable's stays a variable's."""
        self._record.label(buffer.index, category)

    def phase_of(self, buffer: Buffer) -> Phase:
        return self._record.phase_of(buffer.index)

    def kernel(self, call: KernelCall) -> None:
        self._record.kernel(call)

    def note_all(self, unsupported: Mapping[str, int], assumptions: Iterable[str]) -> None:
        self._record.note_all(unsupported, assumptions)

    def trace(self, versions: Mapping[str, str] | None = None, workload: Mapping[str, Any] | None = None) -> Trace:
        return self._record.trace(versions, workload)


@dataclass(slots=True)
class ListStorage:
    """The elements of a tensor list, each held by it; lists that were not changed share theirs."""

    elements: list[Value | None]
    references: int = 0
