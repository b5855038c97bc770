"""The Traces of one job over a numeric parameter, from a few that were captured.

A tensor's extents are polynomials of the batch size, the sequence length, the width …, mostly of the first degree. So
the extents of every storage and kernel are interpolated one by one; the bytes follow from them, whatever their degree.
What is not of that form (scratch of reductions, padding, floors) is near where a capture is near: the nearest one gives
the order of events and all sizes, the others only how they change from there.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

from ..trace import Allocation, Category, Event, EventKind, KernelCall, Operand, Phase, Trace

__all__ = ["TraceFamily"]

_SCALING = (Category.INPUT, Category.ACTIVATION, Category.TEMPORARY, Category.WORKSPACE)
_STEP_PHASES = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD)
_APART = 0.2
"""Captures closer than this share of their value tell little about how sizes change: roundings drown it."""

INTERPOLATED = "interpolated_at"
"""In the workload of a Trace that was not captured: the value it stands for."""

Shape = tuple[int, ...]


class TraceFamily:
    """Captured Traces by the parameter's value, and instances of the same job at other values.

    `degree` is that of the extents: 1 for a batch size; 2 also follows extents such as the tokens of an image.
    """

    def __init__(self, degree: int = 1) -> None:
        self.degree = degree
        self._captured: dict[int, Trace] = {}
        self._twins: dict[tuple[int, int], _Twins] = {}

    def __contains__(self, value: int) -> bool:
        return value in self._captured

    @property
    def captured(self) -> Mapping[int, Trace]:
        return self._captured

    def add(self, value: int, trace: Trace) -> None:
        self._captured[value] = trace

    def likeness(self) -> float:
        """The share of tensors that the captures next to each other have in common; 1 while there is only one."""
        values = sorted(self._captured)
        return min((self._pair(high, low).share for low, high in itertools.pairwise(values)), default=1.0)

    def at(self, value: int) -> Trace:
        """The Trace at that value: the captured one, or an instance."""
        if value in self._captured:
            return self._captured[value]
        near = min(self._captured, key=lambda known: (abs(known - value), known))
        skeleton = self._captured[near]
        others = self._others(near, value)
        if not others:
            return _scaled(skeleton, Fraction(value, near) ** self.degree)
        return _Instance(value, near, skeleton, [(v, self._captured[v], self._pair(near, v)) for v in others]).trace(
            {**skeleton.workload, INTERPOLATED: value}
        )

    def _others(self, near: int, value: int) -> list[int]:
        """The supports beside the nearest one: as many as the degree, those that are not too near to each other."""
        chosen: list[int] = []
        rest = [known for known in self._captured if known != near]
        while rest and len(chosen) < self.degree:
            apart = [
                known
                for known in rest
                if all(abs(known - taken) >= _APART * max(known, taken) for taken in (near, *chosen))
            ]
            if chosen and not apart:
                break
            best = min(apart, key=lambda known: abs(known - value)) if apart else max(rest, key=lambda v: abs(v - near))
            chosen.append(best)
            rest.remove(best)
        return chosen

    def _pair(self, first: int, second: int) -> _Twins:
        if (first, second) not in self._twins:
            self._twins[first, second] = _Twins(self._captured[first], self._captured[second])
        return self._twins[first, second]


def _scaled(trace: Trace, factor: Fraction) -> Trace:
    """A first guess from one capture: what a step makes, and has no parameter's shape, grows in proportion."""
    fixed = {a.shape for a in trace.allocations if a.category is Category.PARAMETER}
    allocations = tuple(
        dataclasses.replace(a, nbytes=int(a.nbytes * factor))
        if a.category in _SCALING and a.phase in _STEP_PHASES and a.shape not in fixed
        else a
        for a in trace.allocations
    )
    return dataclasses.replace(trace, allocations=allocations)


class _Twins:
    """Which storage and which kernel call of another Trace is the same as one of this Trace."""

    def __init__(self, trace: Trace, other: Trace) -> None:
        self.allocations = _matched([_kind(a) for a in trace.allocations], [_kind(a) for a in other.allocations])
        own, others = _kernel_calls(trace), _kernel_calls(other)
        places = _matched([_call_kind(trace, *call) for call in own], [_call_kind(other, *call) for call in others])
        self.kernels = [None if place is None else others[place][1] for place in places]
        """By kernel event of this Trace, in order: the other's index of the call."""
        tensors = [twin for a, twin in zip(trace.allocations, self.allocations, strict=True) if _is_tensor(a)]
        most = max(len(tensors), sum(map(_is_tensor, other.allocations)), 1)
        self.share = sum(twin is not None for twin in tensors) / most


def _is_tensor(a: Allocation) -> bool:
    """Scratch of kernels comes and goes with sizes; a job's structure is in its tensors."""
    return a.category is not Category.WORKSPACE


def _kind(a: Allocation) -> Hashable:
    return a.phase, a.step, a.module, a.operator, a.category, a.dtype, len(a.shape)


def _kernel_calls(trace: Trace) -> list[tuple[int, int]]:
    """Number of the mark they stand under, index of the call; in order."""
    marks = iter([*(mark.position for mark in trace.marks), len(trace.events) + 1])
    following, number, calls = next(marks), 0, []
    for position, (kind, index) in enumerate(trace.events):
        while position >= following:
            following, number = next(marks), number + 1
        if kind == EventKind.KERNEL:
            calls.append((number, index))
    return calls


def _call_kind(trace: Trace, mark: int, index: int) -> Hashable:
    call = trace.kernels[index]
    return mark, call.operator, call.attributes, tuple(len(operand.shape) for operand in call.operands)


def _matched(own: Sequence[Hashable], others: Sequence[Hashable]) -> list[int | None]:
    """Equal kinds are matched in their order, where both have as many of them."""
    if own == others:
        return list(range(len(own)))
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, kind in enumerate(others):
        places[kind].append(place)
    counts: dict[Hashable, int] = defaultdict(int)
    for kind in own:
        counts[kind] += 1
    taken: dict[Hashable, int] = defaultdict(int)
    matched: list[int | None] = []
    for kind in own:
        same = places.get(kind, ())
        matched.append(same[taken[kind]] if len(same) == counts[kind] else None)
        taken[kind] += 1
    return matched


class _Instance:
    """One Trace between captured ones."""

    def __init__(self, value: int, near: int, skeleton: Trace, others: Sequence[tuple[int, Trace, _Twins]]) -> None:
        self.skeleton = skeleton
        self.others = others
        self.weights = _lagrange(value, [near, *(other for other, _, _ in others)])
        self._shapes: dict[tuple[Shape, ...], Shape] = {}

    def trace(self, workload: Mapping[str, object]) -> Trace:
        allocations = tuple(self._allocation(index) for index in range(len(self.skeleton.allocations)))
        events, kernels = self._events()
        return dataclasses.replace(
            self.skeleton, allocations=allocations, events=events, kernels=kernels, workload=workload
        )

    def _allocation(self, index: int) -> Allocation:
        own = self.skeleton.allocations[index]
        seen = [own]
        for _, trace, twins in self.others:
            twin = twins.allocations[index]
            if twin is None:
                return own
            seen.append(trace.allocations[twin])
        if all(version.nbytes == own.nbytes and version.shape == own.shape for version in seen):
            return own
        counts = [math.prod(version.shape) for version in seen]
        # Bytes by the shape wherever they are as many for each element; those of scratch have no shape.
        if (
            own.shape
            and all(counts)
            and all(version.nbytes * counts[0] == own.nbytes * n for version, n in zip(seen, counts, strict=True))
        ):
            shape = self._shape(tuple(version.shape for version in seen))
            nbytes = own.nbytes * math.prod(shape) // counts[0]
        else:
            shape = own.shape
            (nbytes,) = self._shape(tuple((version.nbytes,) for version in seen))
        return Allocation(
            nbytes,
            own.category,
            own.phase,
            own.step,
            own.operator,
            own.module,
            own.source,
            shape,
            own.dtype,
            own.stream,
        )

    def _events(self) -> tuple[tuple[Event, ...], tuple[KernelCall, ...]]:
        table: dict[KernelCall, int] = {}
        known: dict[tuple[int | None, ...], int] = {}
        events = list(self.skeleton.events)
        number = 0
        for position, (kind, index) in enumerate(events):
            if kind != EventKind.KERNEL:
                continue
            twins = tuple(pair.kernels[number] for _, _, pair in self.others)
            key = (index, *twins)
            if key not in known:
                call = self._call(index, twins)
                known[key] = table.setdefault(call, len(table))
            events[position] = Event(EventKind.KERNEL, known[key])
            number += 1
        return tuple(events), tuple(table)

    def _call(self, index: int, twins: tuple[int | None, ...]) -> KernelCall:
        own = self.skeleton.kernels[index]
        if None in twins:
            return own
        seen = [own, *(trace.kernels[t] for t, (_, trace, _) in zip(twins, self.others, strict=True) if t is not None)]
        operands = tuple(self._operand(versions) for versions in zip(*(call.operands for call in seen), strict=True))
        return dataclasses.replace(own, operands=operands)

    def _operand(self, versions: tuple[Operand, ...]) -> Operand:
        own = versions[0]
        if all(version == own for version in versions):
            return own
        shape = self._shape(tuple(version.shape for version in versions))
        for layout in (_dense, _channels_last):
            if own.stride == layout(own.shape):
                return Operand(shape, layout(shape), own.dtype)
        return Operand(shape, self._shape(tuple(version.stride for version in versions)), own.dtype)

    def _shape(self, seen: tuple[Shape, ...]) -> Shape:
        shape = self._shapes.get(seen)
        if shape is None:
            extents = (sum(w * e for w, e in zip(self.weights, ends, strict=True)) for ends in zip(*seen, strict=True))
            shape = self._shapes[seen] = tuple(max(math.floor(extent), 0) for extent in extents)
        return shape


def _lagrange(at: int, supports: Sequence[int]) -> list[Fraction]:
    """How much each support counts for the polynomial through all of them."""
    return [
        math.prod((Fraction(at - other, support - other) for other in supports if other != support), start=Fraction(1))
        for support in supports
    ]


def _dense(shape: Shape) -> Shape:
    return tuple(math.prod(max(extent, 1) for extent in shape[place + 1 :]) for place in range(len(shape)))


def _channels_last(shape: Shape) -> Shape:
    if len(shape) < 3:
        return ()
    _, channels, *grid = shape
    inner = [stride * channels for stride in _dense(tuple(grid))]
    return channels * math.prod(grid), 1, *inner
