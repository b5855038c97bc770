"""What of a compiled job could not be followed as compiled code, with its share of the peak: told with the Trace."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ....trace import EventKind, Trace, TraceBuilder
from ..interpreter import seldom_collecting

__all__ = ["Findings"]

_MOST_BREAKS = 5
"""Told one by one; of more, their number."""


@dataclass
class _EagerRegion:
    reason: str
    blocks: list[tuple[int, int]] = field(default_factory=list)
    """Numbers of its first block and of the one after its last, for each time that it ran."""


class Findings:
    """Collected while a job runs; `sentences` tells them."""

    def __init__(self, ledger: TraceBuilder) -> None:
        self._ledger = ledger
        self._eager: dict[str, _EagerRegion] = {}
        self._breaks: dict[str, None] = {}
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
        region = self._eager.setdefault(reason, _EagerRegion(reason))

        def run(*args: Any) -> Any:
            first = self._ledger.newest + 1
            try:
                return call(*args)
            finally:
                region.blocks.append((first, self._ledger.newest + 1))

        return run

    def untraceable(self, where: str, error: BaseException) -> None:
        """Dynamo itself gave up a function, which then runs eagerly."""
        reason = f"{where}: {_first_line(error)}"
        self._eager.setdefault(reason, _EagerRegion(reason))

    def broke(self, where: str, reason: str) -> None:
        """A graph was broken there: what stands there runs eagerly, between two compiled graphs."""
        self._breaks.setdefault(f"{where}: {reason}")

    def sentences(self, trace: Trace) -> list[str]:
        told = []
        shares = _shares(trace, [region.blocks for region in self._eager.values()])
        for region, share in zip(self._eager.values(), shares, strict=True):
            part = f"{share:.1%} of the peak is its" if region.blocks else "its share of the peak is not known"
            told.append(f"torch.compile: taken as eager, {part}: {region.reason}")
        listed = list(self._breaks)
        if listed:
            more = f" and {len(listed) - _MOST_BREAKS} more" if len(listed) > _MOST_BREAKS else ""
            told.append(f"torch.compile: the graph breaks at {'; '.join(listed[:_MOST_BREAKS])}{more}")
        return told


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}{': ' + lines[0][:200] if lines else ''}"


def _shares(trace: Trace, ranges: list[list[tuple[int, int]]]) -> list[float]:
    """Of the bytes in use at the peak, the part of the blocks in each list of ranges."""
    if not ranges:
        return []
    at_peak = _live_at_peak(trace)
    total = sum(trace.allocations[block].nbytes for block in at_peak) or 1
    return [
        sum(trace.allocations[block].nbytes for block in at_peak if any(first <= block < end for first, end in blocks))
        / total
        for blocks in ranges
    ]


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
