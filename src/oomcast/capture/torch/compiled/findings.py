"""What of a compiled job could not be followed as compiled code, with its share of the peak: told with the Trace."""

from __future__ import annotations

import bisect
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from ....trace import EventKind, Trace, TraceBuilder
from ..interpreter import seldom_collecting

__all__ = ["Findings"]

_MOST_BREAKS = 5
"""Told one by one; of more, their number."""


class _Blocks:
    """What is allocated while something runs, by the numbers of the blocks; within itself, it is counted once."""

    def __init__(self, ledger: TraceBuilder) -> None:
        self._ledger = ledger
        self._depth = 0
        self._ranges: list[range] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        first = self._ledger.newest + 1
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth and self._ledger.newest >= first:
                self._ranges.append(range(first, self._ledger.newest + 1))

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def of(self, blocks: Iterable[int]) -> set[int]:
        """Those of the blocks that were allocated meanwhile."""
        starts = [numbers.start for numbers in self._ranges]
        places = ((block, bisect.bisect_right(starts, block) - 1) for block in blocks)
        return {block for block, place in places if place >= 0 and block in self._ranges[place]}


class Findings:
    """Collected while a job runs; `sentences` tells them."""

    def __init__(self, ledger: TraceBuilder) -> None:
        self._ledger = ledger
        self._eager: dict[str, _Blocks] = {}
        self._breaks: dict[str, None] = {}
        self._regions, self._graphs = _Blocks(ledger), _Blocks(ledger)
        self._compiling, self._since, self._spent = 0, 0.0, 0.0

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Around what torch does to compile; within another, it is counted once."""
        if not self._compiling:
            self._since = time.monotonic()
        self._compiling += 1
        try:
            with seldom_collecting():
                yield
        finally:
            self._compiling -= 1
            if not self._compiling:
                self._spent += time.monotonic() - self._since

    @property
    def is_compiling(self) -> bool:
        return self._compiling > 0

    @property
    def seconds(self) -> float:
        """What compiling has taken so far."""
        return self._spent + (time.monotonic() - self._since if self._compiling else 0.0)

    def eager(self, where: str, error: BaseException, call: Callable[..., Any]) -> Callable[..., Any]:
        """A region that torch could not compile here: it is called as it is, and its memory counted."""
        reason = f"{where or 'a compiled region'}: {_first_line(error)}"
        region = self._eager.setdefault(reason, _Blocks(self._ledger))

        def run(*args: Any) -> Any:
            with region.running(), self._graphs.running():
                return call(*args)

        return run

    def compiled(self, call: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
        """The code of a graph, as it is called."""

        def run(args: list[Any]) -> Any:
            with self._graphs.running():
                return call(args)

        return run

    def region(self) -> AbstractContextManager[None]:
        """Around each call of what the job compiles: what is allocated there outside of graphs is of eager code."""
        return self._regions.running()

    def untraceable(self, where: str, error: BaseException) -> None:
        """Dynamo itself gave up a function, which then runs eagerly."""
        reason = f"{where}: {_first_line(error)}"
        self._eager.setdefault(reason, _Blocks(self._ledger))

    def broke(self, where: str, reason: str) -> None:
        """A graph was broken there: what stands there runs eagerly, between two compiled graphs."""
        self._breaks.setdefault(f"{where}: {reason}")

    def sentences(self, trace: Trace) -> list[str]:
        if not self._eager and not self._breaks:
            return []
        at_peak = _live_at_peak(trace)

        def share(blocks: set[int]) -> str:
            whole = sum(trace.allocations[block].nbytes for block in at_peak)
            return f"{sum(trace.allocations[block].nbytes for block in blocks) / (whole or 1):.1%} of the peak"

        told = []
        for reason, region in self._eager.items():
            part = f"{share(region.of(at_peak))} is its" if region else "its share of the peak is not known"
            told.append(f"torch.compile: taken as eager, {part}: {reason}")
        listed = list(self._breaks)
        if listed:
            more = f" and {len(listed) - _MOST_BREAKS} more" if len(listed) > _MOST_BREAKS else ""
            between = self._regions.of(at_peak) - self._graphs.of(at_peak)
            told.append(
                f"torch.compile: the graph breaks at {'; '.join(listed[:_MOST_BREAKS])}{more}; {share(between)} is of "
                "what runs eagerly there"
            )
        return told


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}{': ' + lines[0][:200] if lines else ''}"


def _live_at_peak(trace: Trace) -> set[int]:
    live: set[int] = set()
    held = highest = 0
    position = 0
    for number, (kind, index) in enumerate(trace.events):
        if kind is EventKind.ALLOCATE:
            held += trace.allocations[index].nbytes
            if held > highest:
                highest, position = held, number
        elif kind is EventKind.FREE:
            held -= trace.allocations[index].nbytes
    for kind, index in trace.events[: position + 1]:
        if kind is EventKind.ALLOCATE:
            live.add(index)
        elif kind is EventKind.FREE:
            live.discard(index)
    return live
