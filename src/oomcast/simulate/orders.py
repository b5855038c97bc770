"""A job's steps in other orders than the captured one, where its batches differ.

A block that was freed for one length of texts serves a longer one not at all and a shorter one in part, so what the
allocator has reserved in the end depends on the order in which the lengths come: for texts of up to 4,096 tokens, 34
GiB in one order and 48 in another. A loader that shuffles takes any of them.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .allocators import Settings, new_allocator
from .program import ALLOCATE, FREE, LET_GO, Instruction, Program, Span
from .timeline import Run

__all__ = ["reserved_in_other_orders"]

_STEPS_THAT_BEGIN = 2
"""The first makes the optimizer's state, the second is the first that finds it."""


class _Step(NamedTuple):
    """A step that may stand anywhere: what it leaves behind is freed by whichever comes after it."""

    spans: tuple[Span, ...]
    own: frozenset[int]
    inherited: tuple[int, ...]
    """What it frees of the step before, in order."""
    left: tuple[int, ...]
    """What it leaves to the step after, in order."""


def reserved_in_other_orders(
    program: Program,
    orders: int,
    *,
    settings: Settings | None = None,
    device_total: int | None = None,
) -> tuple[int, ...]:
    """The peak of the reserved bytes for so many orders of the program's steps, the same ones every time, on a device
    without end.

    The first steps and the last one stay where they are. Nothing is returned where the steps cannot change places: too
    few of them, or they hand unlike things to each other.
    """
    by_step: dict[int, list[Span]] = {}
    for span in program.spans:
        by_step.setdefault(span.step, []).append(span)
    numbers = sorted(by_step)
    begin = [number for number in numbers if number < _STEPS_THAT_BEGIN]
    steps = [_read(by_step[number]) for number in numbers if number >= _STEPS_THAT_BEGIN][:-1]
    if len(steps) < 2 or len({(len(step.inherited), len(step.left)) for step in steps}) > 1:
        return ()
    if len(steps[0].inherited) != len(steps[0].left):
        return ()
    beginning = [span for number in begin for span in by_step[number]]
    found = []
    for seed in range(orders):
        shuffled = random.Random(seed).sample(steps, len(steps))
        run = Run(program, new_allocator(settings, device_total=device_total))
        found.append(_reserved(run, beginning, steps[0].inherited, shuffled))
    return tuple(found)


def _read(spans: Sequence[Span]) -> _Step:
    own: set[int] = set()
    left: dict[int, None] = {}
    inherited: list[int] = []
    for span in spans:
        for _, kind, slot, _, _ in span.instructions:
            if kind == ALLOCATE:
                own.add(slot)
                left[slot] = None
            elif kind == FREE and slot in own:
                del left[slot]
            elif kind == FREE:
                inherited.append(slot)
    return _Step(tuple(spans), frozenset(own), tuple(inherited), tuple(left))


def _reserved(run: Run, begin: Sequence[Span], waiting: Sequence[int], shuffled: Sequence[_Step]) -> int:
    most = max(run.span(span).reserved for span in begin)
    for step in shuffled:
        renamed = dict(zip(step.inherited, waiting, strict=True))
        for span in step.spans:
            own = dataclasses.replace(span, instructions=_renamed(span.instructions, renamed, step.own))
            most = max(most, run.span(own).reserved)
        waiting = step.left
    return most


def _renamed(
    instructions: Sequence[Instruction], renamed: Mapping[int, int], own: frozenset[int]
) -> tuple[Instruction, ...]:
    """What is freed of the step before is freed of the one that now stands there."""
    return tuple(
        (position, kind, renamed.get(slot, slot), nbytes, stream)
        if kind in (FREE, LET_GO) and slot not in own
        else (position, kind, slot, nbytes, stream)
        for position, kind, slot, nbytes, stream in instructions
    )
