"""The Trace of a deep network from those of two shallow ones that differ by some of its equal layers.

A network of equal layers does the same for each of them: forward once in their order, backward in the opposite one, the
optimizer again. So its Trace is a sequence with loops, and one more layer is one more round in each loop. The two
shallow traces tell the loops: the deeper one must be the shallower one with one round more in each, to the last event.
What the rounds have in common is taken from all of them: which block a round frees, counted from the first layer or
from the last one, and which numbers stand in the names of modules. Where anything does not fit, there is no answer
(`None`), and the deep network must be captured itself.

Whether all layers of the deep network are equal is not to be seen here: whoever asks has to know it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from typing import Any, NamedTuple

import numpy as np

from ..trace import Allocation, BrokenTrace, Event, EventKind, KernelCall, Mark, Phase, Trace, verify

__all__ = ["grow"]

_LEAST_ROUNDS = 3
"""Of each loop in the deeper trace that must agree, beside those at its ends that may differ from the rest."""


def grow(shallow: Trace, deeper: Trace, rounds: int, layers: int = 1) -> Trace | None:
    """The Trace with so many further rounds in each loop of `deeper`, which has one more than `shallow`.

    `layers`: how many layers a round has. None where the two traces do not tell it.
    """
    if any(getattr(shallow, name) != getattr(deeper, name) for name in ("versions", "script", "settings")):
        return None
    assumptions = _sentences(shallow.assumptions, deeper.assumptions, rounds)
    if assumptions is None:
        return None
    if any(event.kind is EventKind.LET_GO for event in deeper.events):
        return None  # what waits for other streams comes back after a number of operators, not of rounds
    interned: dict[Any, int] = {}
    first, second = _Tape(shallow, interned), _Tape(deeper, interned)
    loops = _loops(first.tokens, second.tokens)
    if loops is None:
        return None
    while True:
        plan = _Plan(first, second, loops, layers)
        peeled = plan.irregular()
        if not peeled:
            break
        loops = [loop.peeled(*peeled.get(number, (0, 0))) for number, loop in enumerate(loops)]
        if any(loop.rounds < _LEAST_ROUNDS for loop in loops):
            return None
    if plan.failed:
        return None
    try:
        grown = plan.unrolled(rounds)
    except KeyError:  # a block that nobody made: what the rounds have in common is something else
        return None
    unsupported = {
        name: count + (count - shallow.unsupported.get(name, 0)) * rounds for name, count in deeper.unsupported.items()
    }
    on_host = deeper.on_host + (deeper.on_host - shallow.on_host) * rounds
    trace = dataclasses.replace(deeper, unsupported=unsupported, assumptions=assumptions, on_host=on_host, **grown)
    try:
        verify(trace)
    except BrokenTrace:
        return None
    return trace


def _sentences(shallow: tuple[str, ...], deeper: tuple[str, ...], rounds: int) -> tuple[str, ...] | None:
    """What is assumed of the deep network: the same sentences, whose counts (of layers, of blocks) grow alike.

    None where something else differs, such as bytes, which are rounded.
    """
    if len(shallow) != len(deeper):
        return None
    grown = []
    for before, after in zip(shallow, deeper, strict=True):
        few, more = (re.split(r"(\d[\d.,]*\d|\d)", sentence) for sentence in (before, after))
        if few[::2] != more[::2]:
            return None
        for place in range(1, len(more), 2):
            if few[place] != more[place]:
                if not (few[place].isdecimal() and more[place].isdecimal()):
                    return None
                more[place] = str(int(more[place]) + (int(more[place]) - int(few[place])) * rounds)
        grown.append("".join(more))
    return tuple(grown)


# -------- A trace as a sequence of tokens


class _Item(NamedTuple):
    """An event or a mark. `block`: the number of the allocation that is made or freed, -1 for the others."""

    kind: int
    block: int
    content: Any


_MARK = len(EventKind)


class _Tape:
    """Tokens are equal where events are, but for the numbers in the names of modules."""

    def __init__(self, trace: Trace, interned: dict[Any, int]) -> None:
        self.allocations = trace.allocations
        self.items: list[_Item] = []
        tokens: list[int] = []
        named: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.numbers: list[tuple[int, ...]] = []
        """In the name of each allocation's module."""
        kinds = []
        for one in trace.allocations:
            name = named.get(one.module)
            if name is None:
                name = named[one.module] = _without_numbers(one.module)
            self.numbers.append(name[1])
            key = (one.nbytes, one.category, one.phase, one.step, one.operator, name[0], one.source, one.shape,
                   one.dtype, one.stream)  # fmt: skip
            kinds.append(interned.setdefault(key, len(interned)))
        marks = iter(trace.marks)
        mark = next(marks, None)
        for position, event in enumerate(trace.events):
            while mark is not None and mark.position <= position:
                self._add(tokens, _Item(_MARK, -1, (mark.phase, mark.step)), interned, (mark.phase, mark.step))
                mark = next(marks, None)
            if event.kind is EventKind.ALLOCATE or event.kind is EventKind.FREE:
                item = _Item(event.kind, event.index, None)
                self._add(tokens, item, interned, (int(event.kind), kinds[event.index]))
            else:
                content = trace.kernels[event.index] if event.kind is EventKind.KERNEL else None
                self._add(tokens, _Item(event.kind, -1, content), interned, (int(event.kind), content))
        while mark is not None:
            self._add(tokens, _Item(_MARK, -1, (mark.phase, mark.step)), interned, (mark.phase, mark.step))
            mark = next(marks, None)
        self.tokens = np.array(tokens, dtype=np.int64)

    def _add(self, tokens: list[int], item: _Item, interned: dict[Any, int], key: Any) -> None:
        self.items.append(item)
        tokens.append(interned.setdefault((item.kind, key), len(interned)))


def _without_numbers(module: str) -> tuple[str, tuple[int, ...]]:
    parts = module.split(".")
    numbers = tuple(int(part) for part in parts if part.isdecimal())
    return ".".join("#" if part.isdecimal() else part for part in parts), numbers


@functools.lru_cache(maxsize=65536)
def _with_numbers(module: str, numbers: tuple[int, ...]) -> str:
    """Cached, since a module makes many tensors."""
    each = iter(numbers)
    return ".".join(str(next(each)) if part.isdecimal() else part for part in module.split("."))


# -------- Where the loops are


class _Loop(NamedTuple):
    start: int
    """In the deeper tape."""
    length: int
    """Of a round."""
    rounds: int

    @property
    def end(self) -> int:
        return self.start + self.length * self.rounds

    def peeled(self, front: int, back: int) -> _Loop:
        """Without rounds at its ends, which stand for themselves."""
        return _Loop(self.start + front * self.length, self.length, self.rounds - front - back)


def _loops(shallow: np.ndarray, deeper: np.ndarray) -> list[_Loop] | None:
    """The parts of the deeper tape that repeat, each with one round more than in the shallow one."""
    loops: list[_Loop] = []
    at, other, end = 0, 0, 0
    while True:
        common = _common(shallow[other:], deeper[at:])
        at, other = at + common, other + common
        if at == len(deeper) and other == len(shallow):
            return loops
        length = _inserted(shallow, other, deeper, at)
        if length is None:
            return None
        start, stop = at, at + length
        while start > end and deeper[start - 1] == deeper[start - 1 + length]:
            start -= 1
        while stop < len(deeper) and deeper[stop] == deeper[stop - length]:
            stop += 1
        loop = _Loop(start, length, (stop - start) // length)
        if loop.rounds < _LEAST_ROUNDS:
            return None
        loops.append(loop)
        end = max(loop.end, at + length)
        at += length


def _common(one: np.ndarray, other: np.ndarray) -> int:
    """How many tokens two tapes have in common at their beginning."""
    size = min(len(one), len(other))
    differs = np.flatnonzero(one[:size] != other[:size])
    return int(differs[0]) if len(differs) else size


def _inserted(shallow: np.ndarray, other: int, deeper: np.ndarray, at: int) -> int | None:
    """The length of the round that the deeper tape has more at this place: it repeats what stands before it, and behind
    it both tapes go on alike for longest."""
    best, longest = None, 0
    for length in range(1, min(at, len(deeper) - at, len(deeper) - len(shallow)) + 1):
        if deeper[at] != deeper[at - length]:
            continue
        if not np.array_equal(deeper[at : at + length], deeper[at - length : at]):
            continue
        further = _common(shallow[other:], deeper[at + length :])
        is_end = other + further == len(shallow) and at + length + further == len(deeper)
        if further > longest or (is_end and best is None):
            best, longest = length, further
    return best


# -------- What a round has in common with the others


class _Place(NamedTuple):
    """Of an event: in a loop its round and its place in the round; else (`loop` -1) its number among those outside."""

    loop: int
    round: int
    place: int


class _Frees(NamedTuple):
    """Which allocation an event within a loop frees: that of round `sign` * own round + `shift` of a loop. `shift` is
    counted from the first round where the sign is 1, from the last one where it is -1."""

    loop: int
    place: int
    sign: int
    shift: int


class _Plan:
    def __init__(self, shallow: _Tape, deeper: _Tape, loops: list[_Loop], layers: int) -> None:
        self.tape, self.loops, self.layers = deeper, loops, layers
        self.failed = False
        self._tapes = (shallow, deeper)
        self._rounds = ([loop.rounds - 1 for loop in loops], [loop.rounds for loop in loops])
        self._places = tuple(self._placed(rounds) for rounds in self._rounds)
        """Of each tape's items, in order."""
        self._items = tuple(
            {place: tape.items[position] for position, place in enumerate(places)}
            for tape, places in zip(self._tapes, self._places, strict=True)
        )
        self._born = tuple(
            {
                item.block: place
                for item, place in zip(tape.items, places, strict=True)
                if item.kind == EventKind.ALLOCATE
            }
            for tape, places in zip(self._tapes, self._places, strict=True)
        )
        self._frees: dict[tuple[int, int], _Frees] = {}
        self._at_ends: dict[tuple[int, int, int], tuple[_Place, bool]] = {}
        """Loop, place and round (from the last one, where it is negative) → what that round frees instead."""
        self._freed_outside: dict[int, tuple[_Place, bool]] = {}
        """Number of an event outside of loops → the allocation it frees; whether its round is counted from the last."""
        self._names: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        """Loop and place → for each number in the module's name: its value in round 0, what a round adds to it, and
        what a further round of every loop adds to all of them (where layers run backwards)."""
        self._grows: dict[int, list[int]] = {}
        """Number of an event outside → by how much each number grows with a further round of every loop."""

    def _placed(self, rounds: list[int]) -> list[_Place]:
        places: list[_Place] = []
        outside, position = 0, 0
        for number, loop in enumerate(self.loops):
            while position < loop.start:
                places.append(_Place(-1, 0, outside))
                outside, position = outside + 1, position + 1
            for turn in range(rounds[number]):
                places += [_Place(number, turn, place) for place in range(loop.length)]
            position = loop.end
        rest = len(self.tape.items) - position
        places += [_Place(-1, 0, outside + further) for further in range(rest)]
        return places

    def irregular(self) -> dict[int, tuple[int, int]]:
        """The loops whose first or last round differs from the others; empty where all agree, or nothing can help."""
        found: dict[int, tuple[int, int]] = {}
        for number, loop in enumerate(self.loops):
            for place in range(loop.length):
                side = self._learn_round(number, place)
                if side is not None:
                    front, back = found.get(number, (0, 0))
                    found[number] = (max(front, side[0]), max(back, side[1]))
        if not found:
            self._learn_outside()
        return found

    def _learn_round(self, number: int, place: int) -> tuple[int, int] | None:
        """Learn what an event of a loop frees and how its module is named; or which ends of the loop disagree."""
        kind = self._items[1][_Place(number, 0, place)].kind
        if kind == EventKind.FREE:
            return self._learn_free(number, place)
        if kind == EventKind.ALLOCATE:
            return self._learn_name(number, place)
        return None

    def _targets(self, which: int, number: int, place: int) -> list[_Place]:
        return [
            self._born[which][self._items[which][_Place(number, turn, place)].block]
            for turn in range(self._rounds[which][number])
        ]

    def _learn_free(self, number: int, place: int) -> tuple[int, int] | None:
        """By the round in the middle; at the ends a round may free what was made outside of the loop."""
        deeper, shallow = self._targets(1, number, place), self._targets(0, number, place)
        own = len(deeper) // 2
        middle = deeper[own]
        for sign in (1, -1):
            shift = middle.round - own if sign == 1 else middle.round + own - (self._rounds[1][middle.loop] - 1)
            rule = _Frees(middle.loop, middle.place, sign, shift)
            ends, ends_before = self._ends(rule, deeper, 1), self._ends(rule, shallow, 0)
            if middle.loop < 0 or ends is None or ends != ends_before or len(deeper) - sum(ends) < _LEAST_ROUNDS:
                continue
            self._frees[number, place] = rule
            front, back = ends
            pairs = [(turn, deeper[turn], shallow[turn]) for turn in range(front)]
            pairs += [(-turn, deeper[-turn], shallow[-turn]) for turn in range(1, back + 1)]
            for turn, target, earlier in pairs:
                self._at_ends[number, place, turn] = self._resolved(target, earlier)
            return None
        return (1, 1)

    def _ends(self, rule: _Frees, targets: list[_Place], which: int) -> tuple[int, int] | None:
        """How many rounds at the beginning and at the end the rule does not hold for; None if others are wrong, too."""
        right = [target == self._target(rule, turn, self._rounds[which]) for turn, target in enumerate(targets)]
        if True not in right:
            return None
        front, back = right.index(True), right[::-1].index(True)
        return (front, back) if all(right[front : len(right) - back]) else None

    def _resolved(self, target: _Place, earlier: _Place) -> tuple[_Place, bool]:
        """An allocation as both traces know it; whether its round is counted from the last one."""
        from_last = target.loop >= 0 and target.round == earlier.round + 1
        if target != earlier and not (from_last and target._replace(round=earlier.round) == earlier):
            self.failed = True
        return target, from_last

    @staticmethod
    def _target(rule: _Frees, turn: int, rounds: list[int]) -> _Place:
        first = 0 if rule.sign == 1 else rounds[rule.loop] - 1
        return _Place(rule.loop, first + rule.sign * turn + rule.shift, rule.place)

    def _learn_name(self, number: int, place: int) -> tuple[int, int] | None:
        deeper, shallow = (
            [
                self._tapes[which].numbers[self._items[which][_Place(number, turn, place)].block]
                for turn in range(self._rounds[which][number])
            ]
            for which in (1, 0)
        )
        rule = []
        for values, before in zip(zip(*deeper, strict=True), zip(*shallow, strict=True), strict=True):
            middle = len(values) // 2
            step = values[middle] - values[middle - 1]
            begin = values[middle] - middle * step
            grows = begin - (before[len(before) // 2] - (len(before) // 2) * step)
            wrong = [turn for turn, value in enumerate(values) if value != begin + turn * step]
            wrong += [turn for turn, value in enumerate(before) if value != begin - grows + turn * step]
            if wrong or step not in (0, self.layers, -self.layers) or not self._is_growth(grows):
                return (1, 0) if 0 in wrong else (0, 1)
            rule.append((begin, step, grows))
        self._names[number, place] = rule
        return None

    def _is_growth(self, grows: int) -> bool:
        """A whole number of rounds: in a later stage of a pipeline, those of the stages before it come on top."""
        return grows >= 0 and grows % self.layers == 0

    def _learn_outside(self) -> None:
        for place, item in self._items[1].items():
            if place.loop >= 0 or self.failed:
                continue
            before = self._items[0][place]
            if item.kind == EventKind.FREE:
                self._freed_outside[place.place] = self._resolved(
                    self._born[1][item.block], self._born[0][before.block]
                )
            elif item.kind == EventKind.ALLOCATE:
                numbers = zip(self.tape.numbers[item.block], self._tapes[0].numbers[before.block], strict=True)
                grows = [number - earlier for number, earlier in numbers]
                self.failed |= not all(map(self._is_growth, grows))
                self._grows[place.place] = grows

    # -- the deep trace ---------------------------------------------------------------------------------------------

    def unrolled(self, further: int) -> dict[str, Any]:
        rounds = [loop.rounds + further for loop in self.loops]
        out = _Output()
        born: dict[_Place, int] = {}
        outside, position = 0, 0
        for number, loop in enumerate([*self.loops, _Loop(len(self.tape.items), 0, 0)]):
            while position < loop.start:
                self._outside(out, born, outside, rounds, further)
                outside, position = outside + 1, position + 1
            if number < len(self.loops):
                for turn in range(rounds[number]):
                    for place in range(loop.length):
                        self._in_loop(out, born, _Place(number, turn, place), rounds, further)
            position = loop.end if number < len(self.loops) else position
        return out.parts()

    def _outside(self, out: _Output, born: dict[_Place, int], outside: int, rounds: list[int], further: int) -> None:
        place = _Place(-1, 0, outside)
        item = self._items[1][place]
        if item.kind == EventKind.ALLOCATE:
            one, grows = self.tape.allocations[item.block], self._grows[outside]
            if any(grows):
                numbers = tuple(
                    number + growth * further
                    for number, growth in zip(self.tape.numbers[item.block], grows, strict=True)
                )
                one = dataclasses.replace(one, module=_with_numbers(one.module, numbers))
            born[place] = out.allocate(one)
        elif item.kind == EventKind.FREE:
            out.free(born[_later(*self._freed_outside[outside], further)])
        else:
            out.add(item)

    def _in_loop(self, out: _Output, born: dict[_Place, int], place: _Place, rounds: list[int], further: int) -> None:
        item = self._items[1][_Place(place.loop, 0, place.place)]
        if item.kind == EventKind.ALLOCATE:
            one = self.tape.allocations[item.block]
            rule = self._names[place.loop, place.place]
            if any(step or grows for _, step, grows in rule):
                numbers = tuple([begin + grows * further + step * place.round for begin, step, grows in rule])
                one = dataclasses.replace(one, module=_with_numbers(one.module, numbers))
            born[place] = out.allocate(one)
        elif item.kind == EventKind.FREE:
            key = (place.loop, place.place)
            other = self._at_ends.get((*key, place.round)) or self._at_ends.get(
                (*key, place.round - rounds[place.loop])
            )
            if other is None:
                out.free(born[self._target(self._frees[key], place.round, rounds)])
            else:
                out.free(born[_later(*other, further)])
        else:
            out.add(item)


def _later(place: _Place, from_last: bool, further: int) -> _Place:
    return place._replace(round=place.round + further) if from_last else place


class _Output:
    """A trace in the making, from items that are known."""

    def __init__(self) -> None:
        self._allocations: list[Allocation] = []
        self._events: list[Event] = []
        self._kernels: dict[KernelCall, int] = {}
        self._marks: list[Mark] = []

    def allocate(self, allocation: Allocation) -> int:
        index = len(self._allocations)
        self._allocations.append(allocation)
        self._events.append(Event(EventKind.ALLOCATE, index))
        return index

    def free(self, index: int) -> None:
        self._events.append(Event(EventKind.FREE, index))

    def add(self, item: _Item) -> None:
        if item.kind == _MARK:
            phase: Phase = item.content[0]
            self._marks.append(Mark(len(self._events), phase, item.content[1]))
        elif item.kind == EventKind.KERNEL:
            index = self._kernels.setdefault(item.content, len(self._kernels))
            self._events.append(Event(EventKind.KERNEL, index))
        else:
            self._events.append(Event(EventKind(item.kind), 0))

    def parts(self) -> dict[str, Any]:
        return {
            "allocations": tuple(self._allocations),
            "events": tuple(self._events),
            "kernels": tuple(self._kernels),
            "marks": tuple(self._marks),
        }
