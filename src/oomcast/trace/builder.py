"""A Trace in the making, whoever makes it: a capture that follows tensors, or one that plans memory itself."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .promises import BrokenTrace
from .record import Allocation, Category, Event, EventKind, KernelCall, Mark, Phase, Trace

__all__ = ["Moment", "TraceBuilder", "peak_of"]

_Born = tuple[int, Phase, int, str, str, str, tuple[int, ...], str, int]
"""An allocation without its category: size, phase, step, operator, module, source, shape, dtype, stream."""


class Moment(NamedTuple):
    """How far a record had come."""

    events: int
    marks: int
    blocks: int
    live: tuple[int, ...]
    unsupported: Mapping[str, int]


class TraceBuilder:
    """Collects events in order; blocks are numbered in the order in which they are allocated.

    What a block is for may be said at once, or later by `label`, for it is often known only when the block is used:

    >>> builder = TraceBuilder()
    >>> builder.enter(Phase.FORWARD, 0)
    >>> block = builder.allocate(512, None, "aten.mm")
    >>> builder.enter(Phase.BACKWARD, 0)
    >>> builder.free(block)
    >>> builder.trace().allocations[0].category.value
    'activation'
    """

    def __init__(self) -> None:
        self.phase = Phase.BUILD
        self.step = -1
        self.stream = 0
        """Of the blocks that are allocated from now on."""
        self.unsupported: dict[str, int] = {}
        self.assumptions: dict[str, None] = {}
        self.reads_data = False
        """Whether sizes or conditions depend on values that nobody knows here."""
        self.on_host = 0
        self.plan_is_modelled = False
        self._born: list[_Born] = []
        self._category: list[Category | None] = []
        self._names: dict[int, str] = {}
        self._events: list[Event] = []
        self._kernels: dict[KernelCall, int] = {}
        self._calls: list[KernelCall] = []
        self._marks: list[Mark] = [Mark(0, Phase.BUILD, -1)]
        self._live: dict[int, None] = {}
        self._let_go: set[int] = set()
        self.held = 0
        """Bytes in use now."""
        self._highest = 0
        self.entered: set[Phase] = set()
        """The phases that were entered since somebody emptied this."""
        self.before_phase: list[Callable[[Phase], None]] = []
        """Told the next phase while the last one is still on."""
        self._together: list[int] | None = None
        """Blocks to free; complemented, to let go."""
        self._repeated: _Repetition | None = None

    @property
    def event_count(self) -> int:
        return len(self._events)

    def enter(self, phase: Phase, step: int) -> None:
        """From now on the job is in this phase. What forward left alive when backward begins is an activation."""
        if phase is self.phase and step == self.step:
            return
        for tell in self.before_phase:
            tell(phase)
        if phase is Phase.BACKWARD and self.phase is not Phase.BACKWARD:
            for index in self._live:
                if self._category[index] is None and self._born[index][1] is Phase.FORWARD:
                    self._category[index] = Category.ACTIVATION
        self.phase, self.step = phase, step
        self.entered.add(phase)
        self._marks.append(Mark(len(self._events), phase, step))

    def allocate(
        self,
        nbytes: int,
        category: Category | None,
        operator: str,
        module: str = "",
        source: str = "",
        shape: tuple[int, ...] = (),
        dtype: str = "",
        phase: Phase | None = None,
    ) -> int | None:
        """The number of a new block; None for one without bytes.

        A `category` of None is not known yet; if `label` never says it, the block is a temporary. `phase` says whose
        the block is where parts of a step overlap.
        """
        if not nbytes:
            return None
        index = len(self._born)
        self._born.append((nbytes, phase or self.phase, self.step, operator, module, source, shape, dtype, self.stream))
        self._category.append(category)
        self._live[index] = None
        self.held += nbytes
        if self.held > self._highest:
            self._highest = self.held
        self._events.append(Event(EventKind.ALLOCATE, index))
        return index

    def free(self, index: int | None) -> None:
        """Give a block back; None, a block without bytes, is nothing to give."""
        if index is None:
            return
        if self._together is not None:
            self._together.append(index)
        elif index in self._live:
            del self._live[index]
            if index in self._let_go:
                self._let_go.remove(index)
            else:
                self.held -= self._born[index][0]
            self._events.append(Event(EventKind.FREE, index))
        else:
            raise BrokenTrace(f"block {index} is freed a second time.")

    def let_go(self, index: int) -> None:
        """Nothing needs a block any more but another stream: it is freed later, and not counted until then."""
        if self._together is not None:
            self._together.append(~index)
            return
        if index not in self._live or index in self._let_go:
            raise BrokenTrace(f"block {index} is let go, but it is not in use.")
        self._let_go.add(index)
        self.held -= self._born[index][0]
        self._events.append(Event(EventKind.LET_GO, index))

    @contextlib.contextmanager
    def freeing_together(self) -> Iterator[None]:
        """What dies in here dies in an order that depends on addresses: it is put in the order of birth."""
        self._together = []
        try:
            yield
        finally:
            together, self._together = self._together, None
            for index in sorted(together, key=lambda index: max(index, ~index)):
                self.free(index) if index >= 0 else self.let_go(~index)

    def kernel(self, call: KernelCall) -> None:
        index = self._kernels.setdefault(call, len(self._calls))
        if index == len(self._calls):
            self._calls.append(call)
        self._events.append(Event(EventKind.KERNEL, index))

    def empty_cache(self) -> None:
        self._events.append(Event(EventKind.EMPTY_CACHE, 0))

    def label(self, index: int, category: Category, name: str = "") -> None:
        """Say what a block is for, and whose. The first word stands: a parameter stays one when aliased."""
        if self._category[index] in (None, Category.ACTIVATION):
            self._category[index] = category
            if name:
                self._names[index] = name

    @contextlib.contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """A phase within another, which goes on afterwards."""
        before = self.phase
        self.enter(phase, self.step)
        try:
            yield
        finally:
            self.enter(before, self.step)

    @contextlib.contextmanager
    def highest_within(self) -> Iterator[list[int]]:
        """Afterwards the list holds the most bytes that were in use meanwhile."""
        before, self._highest = self._highest, self.held
        found: list[int] = []
        try:
            yield found
        finally:
            found.append(self._highest)
            self._highest = max(before, self._highest)

    def take_highest(self) -> int:
        """The most bytes that were in use since this was last asked."""
        highest, self._highest = self._highest, self.held
        return highest

    def category_of(self, index: int) -> Category | None:
        """What a block is for, as far as that is known yet."""
        return self._category[index]

    def label_like(self, index: int, other: int) -> None:
        """A block that takes the place of another one is for the same."""
        self._category[index] = self._category[other]
        if other in self._names:
            self._names[index] = self._names[other]

    def phase_of(self, index: int) -> Phase:
        """In which a block was allocated."""
        return self._born[index][1]

    def nbytes_of(self, index: int) -> int:
        return self._born[index][0]

    def stream_of(self, index: int) -> int:
        """On which a block was allocated."""
        return self._born[index][-1]

    @property
    def newest(self) -> int:
        """The number of the last block that was allocated; -1 before the first."""
        return len(self._born) - 1

    def is_live(self, index: int) -> bool:
        return index in self._live

    def live_after(self, index: int) -> list[int]:
        """The blocks allocated after that one and in use now, newest first."""
        found = []
        for block in reversed(self._live):
            if block <= index:
                break
            found.append(block)
        return found

    def events_from(self, position: int) -> list[Event]:
        """What was recorded since there were so many events."""
        return self._events[position:]

    def marks_from(self, number: int) -> list[Mark]:
        return self._marks[number:]

    def kernel_call(self, index: int) -> KernelCall:
        """The kernel of an event's index."""
        return self._calls[index]

    def live(self) -> tuple[int, ...]:
        """The blocks that are allocated now, in the order of birth."""
        return tuple(block for block in self._live if block not in self._let_go)

    def moment(self) -> Moment:
        return Moment(len(self._events), len(self._marks), len(self._born), tuple(self._live), dict(self.unsupported))

    def repeat_since(self, moment: Moment, times: int) -> bool:
        """Let the record go on with what happened since then, so many times more; False where that cannot be.

        It can be where what it began with is what it ends with: each block that was freed has a successor, made by the
        same code in the same order. Steps are counted on. Once for each record, as if nothing had been repeated for
        whoever goes on with it.
        """
        events = self._events[moment.events :]
        if any(event.kind is EventKind.LET_GO for event in events) or self._let_go:
            return False  # such a block comes back after a number of operators, wherever they are
        freed = {event.index for event in events if event.kind is EventKind.FREE and event.index < moment.blocks}
        before = [block for block in moment.live if block in freed]
        after = [block for block in self._live if block >= moment.blocks]
        if [self._made_by(block) for block in before] != [self._made_by(block) for block in after]:
            return False
        self._repeated = _Repetition(moment, self.moment(), times, dict(zip(before, after, strict=True)))
        for what, count in list(self.unsupported.items()):
            self.unsupported[what] = count + times * (count - moment.unsupported.get(what, 0))
        return True

    def _made_by(self, block: int) -> tuple[Any, ...]:
        """Everything that was said of a block at its birth, but for the step."""
        nbytes, phase, _, *others = self._born[block]
        return nbytes, phase, *others

    def note_unsupported(self, what: str, count: int = 1) -> None:
        """An operator or a feature was met whose memory is not modelled."""
        self.unsupported[what] = self.unsupported.get(what, 0) + count

    def assume(self, sentence: str, *, about_data: bool = False) -> None:
        """The user is told; `about_data` where sizes or conditions were taken instead of read."""
        self.assumptions.setdefault(sentence)
        self.reads_data = self.reads_data or about_data

    def put_off(self, nbytes: int) -> None:
        """So much is in the host's memory, since the layout puts it there."""
        self.on_host = nbytes

    def note_all(self, unsupported: Mapping[str, int], assumptions: Iterable[str]) -> None:
        """What a capture that plans memory has counted by itself."""
        for what, count in unsupported.items():
            self.note_unsupported(what, count)
        for sentence in assumptions:
            self.assume(sentence)

    def trace(self, versions: Mapping[str, str] | None = None, workload: Mapping[str, Any] | None = None) -> Trace:
        """What was recorded so far."""
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
        events, marks = self._events, self._marks
        if self._repeated is not None:
            allocations, events, marks = self._repeated.applied(allocations, events, marks)
        return Trace(
            allocations=allocations,
            events=tuple(events),
            kernels=tuple(self._calls),
            marks=tuple(marks),
            unsupported=dict(self.unsupported),
            assumptions=tuple(self.assumptions),
            versions=dict(versions or {}),
            workload=dict(workload or {}),
            on_host=self.on_host,
            plan_is_modelled=self.plan_is_modelled,
        )


class _Repetition(NamedTuple):
    """What happened between two moments, once more as often as wanted; then the record goes on."""

    begin: Moment
    end: Moment
    times: int
    successors: Mapping[int, int]
    """Of the blocks that it found and freed: those that it made in their stead."""

    def applied(
        self, allocations: tuple[Allocation, ...], events: list[Event], marks: list[Mark]
    ) -> tuple[tuple[Allocation, ...], list[Event], list[Mark]]:
        begin, end, times = self.begin, self.end, self.times
        made, happened = allocations[begin.blocks : end.blocks], events[begin.events : end.events]
        further, longer, marked = list(allocations[: end.blocks]), events[: end.events], marks[: end.marks]
        for turn in range(1, times + 1):
            further += [dataclasses.replace(block, step=block.step + turn) for block in made]
            longer += [Event(kind, self._block(kind, index, turn)) for kind, index in happened]
            ahead = turn * len(happened)
            marked += [Mark(at + ahead, phase, step + turn) for at, phase, step in marks[begin.marks : end.marks]]
        # What still happens finds the blocks of the last round.
        further += [dataclasses.replace(block, step=block.step + times) for block in allocations[end.blocks :]]
        longer += [
            Event(kind, index + times * len(made) if kind in _ABOUT_BLOCKS and index >= begin.blocks else index)
            for kind, index in events[end.events :]
        ]
        ahead = times * len(happened)
        marked += [Mark(at + ahead, phase, step + times) for at, phase, step in marks[end.marks :]]
        return tuple(further), longer, marked

    def _block(self, kind: EventKind, index: int, turn: int) -> int:
        """Of an event of that turn, where it is about one."""
        made = self.end.blocks - self.begin.blocks
        if kind not in _ABOUT_BLOCKS:
            return index
        return index + turn * made if index >= self.begin.blocks else self.successors[index] + (turn - 1) * made


_ABOUT_BLOCKS = (EventKind.ALLOCATE, EventKind.FREE, EventKind.LET_GO)


def peak_of(trace: Trace) -> int:
    """The highest sum of the bytes that were asked for."""
    signs = {EventKind.ALLOCATE: 1, EventKind.FREE: -1}
    live = peak = 0
    for kind, index in trace.events:
        if kind in signs:
            live += signs[kind] * trace.allocations[index].nbytes
            peak = max(peak, live)
    return peak
