"""The Trace in the making: every storage from birth to death, and what it turned out to be for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Mark, Phase, Trace

__all__ = ["Ledger"]


class Ledger:
    """Collects events in order. A storage's category is often known only later, so it is set at the end."""

    def __init__(self) -> None:
        self.phase = Phase.BUILD
        self.step = -1
        self.unsupported: dict[str, int] = {}
        self.assumptions: dict[str, None] = {}
        self.reads_data = False
        """Whether sizes or conditions depend on values that nobody knows here."""
        self._born: list[tuple[int, Phase, int, str, str, str, tuple[int, ...], str, int]] = []
        self._category: list[Category | None] = []
        self._names: dict[int, str] = {}
        self._events: list[Event] = []
        self._kernels: dict[KernelCall, int] = {}
        self._marks: list[Mark] = [Mark(0, Phase.BUILD, -1)]
        self._live: dict[int, None] = {}
        self._together: list[int] | None = None

    @property
    def event_count(self) -> int:
        return len(self._events)

    def enter(self, phase: Phase, step: int) -> None:
        """From now on the job is in this phase. What forward left alive when backward begins is an activation."""
        if phase is self.phase and step == self.step:
            return
        if phase is Phase.BACKWARD and self.phase is not Phase.BACKWARD:
            for index in self._live:
                if self._category[index] is None and self._born[index][1] is Phase.FORWARD:
                    self._category[index] = Category.ACTIVATION
        self.phase, self.step = phase, step
        self._marks.append(Mark(len(self._events), phase, step))

    def allocate(
        self,
        nbytes: int,
        operator: str,
        module: str,
        source: str,
        shape: tuple[int, ...],
        dtype: str,
        stream: int,
        category: Category | None = None,
    ) -> int:
        index = len(self._born)
        self._born.append((nbytes, self.phase, self.step, operator, module, source, shape, dtype, stream))
        self._category.append(category)
        self._live[index] = None
        self._events.append(Event(EventKind.ALLOCATE, index))
        return index

    def free(self, index: int) -> None:
        if self._together is not None:
            self._together.append(index)
        elif index in self._live:
            del self._live[index]
            self._events.append(Event(EventKind.FREE, index))

    @contextlib.contextmanager
    def freeing_together(self) -> Iterator[None]:
        """What dies in here dies in an order that depends on addresses: it is put in the order of birth."""
        self._together = []
        try:
            yield
        finally:
            together, self._together = self._together, None
            for index in sorted(together):
                self.free(index)

    def kernel(self, call: KernelCall) -> None:
        self._events.append(Event(EventKind.KERNEL, self._kernels.setdefault(call, len(self._kernels))))

    def empty_cache(self) -> None:
        self._events.append(Event(EventKind.EMPTY_CACHE, 0))

    def label(self, index: int, category: Category, name: str = "") -> None:
        """Say what an allocation is for, and whose. The first word stands: a parameter stays one when aliased."""
        if self._category[index] in (None, Category.ACTIVATION):
            self._category[index] = category
            if name:
                self._names[index] = name

    def note_unsupported(self, what: str) -> None:
        self.unsupported[what] = self.unsupported.get(what, 0) + 1

    def assume(self, sentence: str, *, about_data: bool = False) -> None:
        self.assumptions.setdefault(sentence)
        self.reads_data = self.reads_data or about_data

    def live(self) -> Iterable[int]:
        return tuple(self._live)

    def trace(self, versions: dict[str, str], workload: dict[str, object]) -> Trace:
        allocations = tuple(
            Allocation(
                nbytes=nbytes,
                category=category or Category.TEMPORARY,
                phase=phase,
                step=step,
                operator=operator,
                module=self._names.get(index, module),
                source=source,
                shape=shape,
                dtype=dtype,
                stream=stream,
            )
            for index, ((nbytes, phase, step, operator, module, source, shape, dtype, stream), category) in enumerate(
                zip(self._born, self._category, strict=True)
            )
        )
        return Trace(
            allocations=allocations,
            events=tuple(self._events),
            kernels=tuple(self._kernels),
            marks=tuple(self._marks),
            unsupported=dict(self.unsupported),
            assumptions=tuple(self.assumptions),
            versions=versions,
            workload=workload,
        )
