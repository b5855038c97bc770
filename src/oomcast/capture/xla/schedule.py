"""A compiled training step as it runs: what it is given, what it returns, and what each instruction holds meanwhile.

Two sources make one: XLA's own compiler where it is installed (`plan`), and the model of it in the room of JAX.
`play` turns it into a Trace: what training keeps is made, batches come, the step runs some times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...trace import Category, KernelCall, Phase, TraceBuilder

__all__ = ["Held", "Place", "Ran", "Schedule", "Slot", "as_evaluation", "category_of", "play"]


class Place(NamedTuple):
    """Where in the user's program an instruction comes from."""

    phase: Phase
    module: str
    source: str


@dataclass(frozen=True, slots=True)
class Slot:
    """An argument, or a result that needs memory of its own. Bytes of one device."""

    name: str
    category: Category
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    donated: bool = False
    """Whether a result takes its memory over."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An instruction, in the order in which they run."""

    op: str
    place: Place
    kernel: KernelCall | None = None
    scratch: int = 0
    """Bytes that it needs only while it runs, a part of the arena."""


@dataclass(frozen=True, slots=True)
class Held:
    """A temporary: a part of the arena from one instruction to another."""

    nbytes: int
    first: int
    """Number of the instruction that makes it."""
    last: int
    """Number of its last reader."""
    category: Category
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Schedule:
    arguments: Sequence[Slot]
    own_results: Sequence[Slot]
    """Those that take no argument's memory."""
    instructions: Sequence[Ran]
    temporaries: Sequence[Held]
    arena: int
    """Bytes of the block that holds all temporaries."""
    constants: int = 0
    """Bytes that come with the program and stay."""
    begins: Phase = Phase.FORWARD
    """With which phase, once the batch is there."""

    @property
    def most_held(self) -> int:
        """The most that temporaries hold at a time."""
        changes = [0] * (len(self.instructions) + 1)
        for held in self.temporaries:
            changes[held.first] += held.nbytes
            changes[min(held.last, len(self.instructions) - 1) + 1] -= held.nbytes
        live = highest = 0
        for change, instruction in zip(changes, self.instructions, strict=False):
            live += change
            highest = max(highest, live + instruction.scratch)
        return min(highest, self.arena)


def category_of(made: Phase, last: Phase, *, optimizer_reads: bool) -> Category:
    """What the forward pass leaves for the backward one is an activation, what the optimizer reads a gradient."""
    if made is Phase.FORWARD and last is not Phase.FORWARD:
        return Category.ACTIVATION
    if made is Phase.BACKWARD and optimizer_reads:
        return Category.GRADIENT
    return Category.TEMPORARY


def as_evaluation(schedule: Schedule) -> Schedule:
    """The same of a step that takes no gradients: all of it is evaluation, and what it is given stays as it is."""
    return dataclasses.replace(
        schedule,
        arguments=[
            dataclasses.replace(slot, donated=slot.donated or slot.category is not Category.INPUT)
            for slot in schedule.arguments
        ],
        instructions=[
            dataclasses.replace(ran, place=ran.place._replace(phase=Phase.EVALUATION)) for ran in schedule.instructions
        ],
        temporaries=[dataclasses.replace(held, category=Category.TEMPORARY) for held in schedule.temporaries],
        begins=Phase.EVALUATION,
    )


def play(schedule: Schedule, steps: int) -> TraceBuilder:
    """Run the step `steps` times. Old parameters live until the new ones are there, unless they are donated."""
    run = _Run(schedule)
    for number in range(steps):
        run.step(number)
    return run.record


class _Run:
    def __init__(self, schedule: Schedule) -> None:
        self.record = TraceBuilder()
        self._schedule = schedule
        self._kept: list[int | None]
        """What a step's results replace."""
        self._made_at: dict[int, list[int]] = {}
        self._dies_at: dict[int, list[int]] = {}
        for number, held in enumerate(schedule.temporaries):
            self._made_at.setdefault(held.first, []).append(number)
            self._dies_at.setdefault(held.last, []).append(number)
        phases = [instruction.place.phase for instruction in schedule.instructions]
        backward = [position for position, phase in enumerate(phases) if phase is Phase.BACKWARD]
        self._backward = range(backward[0], backward[-1] + 1) if backward else range(0)
        self._gaps = schedule.arena - schedule.most_held
        self._inputs = [slot for slot in schedule.arguments if slot.category is Category.INPUT]
        self._kept = []
        for slot in schedule.arguments:
            if slot.category is not Category.INPUT:
                block = self._allocate(slot)
                if not slot.donated:
                    self._kept.append(block)
        self.record.allocate(schedule.constants, Category.BUFFER, "XLA: constants of the program")

    def step(self, number: int) -> None:
        record = self.record
        record.enter(Phase.INPUT, number)
        batch = [self._allocate(slot) for slot in self._inputs]
        record.enter(self._schedule.begins, number)
        outputs = [self._allocate(slot) for slot in self._schedule.own_results]
        gaps = record.allocate(self._gaps, Category.TEMPORARY, "XLA: gaps between temporaries")
        self._instructions(number)
        record.free(gaps)
        for block in (*self._kept, *batch):  # the caller's names now stand for what the step returned
            record.free(block)
        self._kept = outputs

    def _instructions(self, number: int) -> None:
        record, schedule = self.record, self._schedule
        blocks: dict[int, int | None] = {}
        for position, instruction in enumerate(schedule.instructions):
            place = instruction.place
            if position in self._backward:
                record.enter(Phase.BACKWARD, number)
            elif self._backward and position >= self._backward.stop:
                record.enter(Phase.OPTIMIZER, number)
            for made in self._made_at.get(position, ()):
                held = schedule.temporaries[made]
                blocks[made] = record.allocate(
                    held.nbytes,
                    held.category,
                    instruction.op,
                    place.module,
                    place.source,
                    held.shape,
                    held.dtype,
                    place.phase,
                )
            if instruction.kernel is not None:
                record.kernel(instruction.kernel)
            scratch = record.allocate(
                instruction.scratch,
                Category.TEMPORARY,
                f"{instruction.op}: while it runs",
                place.module,
                place.source,
            )
            record.free(scratch)
            for gone in self._dies_at.get(position, ()):
                record.free(blocks.pop(gone))
        for block in blocks.values():
            record.free(block)

    def _allocate(self, slot: Slot) -> int | None:
        operator = "argument" if slot.category is Category.INPUT else "array"
        return self.record.allocate(slot.nbytes, slot.category, operator, slot.name, "", slot.shape, slot.dtype)
