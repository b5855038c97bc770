"""Which modules are worth recomputing, read from a Trace: what each keeps, from when until when.

A checkpointed module gives back what it kept at the end of its forward and makes it anew when its backward begins. So
the Trace tells for any set of modules how high the peak would be. That chooses the modules; what they save is captured.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from ..trace import Category, EventKind, Phase, Trace

__all__ = ["Recomputed", "maybe_never_called", "worth_recomputing"]

_WORTH = 0.002
"""The share of the peak that a module must take away to be named."""
_MOST = 128


class Recomputed(NamedTuple):
    """A set of modules, none within another."""

    modules: tuple[str, ...]
    peak: int
    """Live bytes at the peak, once they are recomputed."""
    share: float
    """What they make of all bytes that a forward pass makes."""


class _Pass(NamedTuple):
    """A forward pass with its backward pass: positions among the events."""

    forward: int
    backward: int
    end: int


class _Module(NamedTuple):
    name: str
    starts: int
    gone_from: int
    """Where its forward ends: from there on, what it keeps would be gone."""
    back_at: int
    """Where its backward begins."""
    ends: int
    saved: int
    made: int
    """Bytes that its forward makes."""

    def works_within(self, start: int, end: int) -> bool:
        """Whether it is this module's own forward or backward that runs there."""
        return (self.starts <= start and end <= self.gone_from) or (self.back_at <= start and end <= self.ends)


def worth_recomputing(trace: Trace, barred: Collection[str] = ()) -> tuple[Recomputed, ...]:
    """Sets with ever more modules and ever lower peaks, without the barred ones.

    Each set adds the module that lowers the peak most. Where that ends because a module is itself as large as the rest,
    it starts over with the parts of this module instead.
    """
    live, born, freed = _lives(trace)
    passes = _passes(trace, len(live))
    if not passes:
        return ()
    around = max(passes, key=lambda span: max(live[span.forward : span.end]))
    # All passes are alike: what is gained in this one is gained in each. What is beside them stays as it is.
    for other in passes:
        if other is not around:
            live[other.forward : other.end] = [0] * (other.end - other.forward)
    peak = max(live)
    made = sum(trace.allocations[i].nbytes for i, at in born.items() if around.forward <= at < around.backward)
    modules = [
        module
        for module in _modules(trace, around, born, freed)
        if module.saved >= _WORTH * peak and module.name not in barred and module.gone_from < module.back_at
    ]
    found: list[Recomputed] = []
    while modules:
        chain, too_large = _lowered(live, modules, int(_WORTH * peak))
        for count, (_, height) in enumerate(chain, 1):
            chosen = [module for module, _ in chain[:count]]
            if height < (found[-1].peak if found else peak) - _WORTH * peak:
                share = sum(module.made for module in chosen) / made
                found.append(Recomputed(tuple(module.name for module in chosen), height, share))
        modules = [module for module in modules if module not in too_large] if too_large else []
    return tuple(found)


def maybe_never_called(trace: Trace, sets: Sequence[Recomputed]) -> set[str]:
    """Of these modules, those that only others' work was seen of: a Sequential is called, a list of modules is not."""
    at_work = {made.module for made in trace.allocations if made.phase is Phase.FORWARD}
    return {name for recomputed in sets for name in recomputed.modules if name not in at_work}


def _lowered(live: list[int], modules: list[_Module], least: int) -> tuple[list[tuple[_Module, int]], list[_Module]]:
    """The modules in the order in which they lower the peak, with the peak then; and those that hold the last one."""
    cuts = sorted({0, len(live), *(cut for m in modules for cut in (m.starts, m.gone_from, m.back_at, m.ends))})
    heights = [max(live[start:end]) for start, end in itertools.pairwise(cuts)]
    places = {m: (bisect.bisect_left(cuts, m.gone_from), bisect.bisect_left(cuts, m.back_at)) for m in modules}
    left = list(modules)
    chain: list[tuple[_Module, int]] = []
    while left and len(chain) < _MOST:
        before = [0, *itertools.accumulate(heights, max)]
        after = [*list(itertools.accumulate(reversed(heights), max))[::-1], 0]
        options = []
        for module in left:
            start, end = places[module]
            height = max(before[start], max(heights[start:end]) - module.saved, after[end])
            options.append((height, -module.saved, module.gone_from, module))
        height, _, _, best = min(options)
        if max(heights) - height < least:
            break
        chain.append((best, height))
        for place in range(*places[best]):
            heights[place] -= best.saved
        left = [module for module in left if not _overlap(module.name, best.name)]
    highest = heights.index(max(heights))
    return chain, [module for module, _ in chain if module.works_within(cuts[highest], cuts[highest + 1])]


def _lives(trace: Trace) -> tuple[list[int], dict[int, int], dict[int, int]]:
    """Live bytes after each event; by allocation, the event that made it and the one that freed it."""
    live, born, freed = [], {}, {}
    now = 0
    for position, (kind, index) in enumerate(trace.events):
        if kind == EventKind.ALLOCATE:
            now += trace.allocations[index].nbytes
            born[index] = position
        elif kind == EventKind.FREE:
            now -= trace.allocations[index].nbytes
            freed[index] = position
        live.append(now)
    return live, born, freed


def _passes(trace: Trace, events: int) -> list[_Pass]:
    marks = trace.marks
    ends = [*(mark.position for mark in marks[1:]), events]
    return [
        _Pass(mark.position, following.position, end)
        for mark, following, end in zip(marks, marks[1:], ends[1:], strict=False)
        if mark.phase is Phase.FORWARD
        and following.phase is Phase.BACKWARD
        and mark.position < following.position < end
    ]


def _modules(trace: Trace, around: _Pass, born: dict[int, int], freed: dict[int, int]) -> Iterator[_Module]:
    """Those that have parameters: others keep next to nothing beyond what they are given and what they return."""
    named = {name for made in trace.allocations if made.category is Category.PARAMETER for name in _above(made.module)}
    forward: dict[str, list[int]] = defaultdict(list)
    backward: dict[str, list[int]] = defaultdict(list)
    for index, position in born.items():
        if not around.forward <= position < around.end:
            continue
        own = trace.allocations[index].module
        for name in (own, *_above(own)):
            if name in named:
                (forward if position < around.backward else backward)[name].append(index)
    for name, indices in forward.items():
        kept = [index for index in indices if freed.get(index, around.end) >= around.backward]
        if not kept or not backward[name]:
            continue
        saved = sum(trace.allocations[index].nbytes for index in kept) - _output(trace, kept)
        yield _Module(
            name,
            starts=min(map(born.__getitem__, indices)),
            gone_from=max(map(born.__getitem__, indices)) + 1,
            back_at=min(map(born.__getitem__, backward[name])),
            ends=max(min(freed.get(index, around.end), around.end) for index in (*kept, *backward[name])),
            saved=saved,
            made=sum(trace.allocations[index].nbytes for index in indices),
        )


def _output(trace: Trace, kept: list[int]) -> int:
    """The next module's to keep: the largest that the last operator left, which may leave statistics beside it."""
    made = [trace.allocations[index] for index in reversed(kept)]
    last = itertools.takewhile(
        lambda allocation: (allocation.operator, allocation.module) == (made[0].operator, made[0].module), made
    )
    return max(allocation.nbytes for allocation in last)


def _above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts))]


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
