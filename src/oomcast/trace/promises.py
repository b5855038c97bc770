"""The promises a Trace makes, checked where one crosses a border."""

from __future__ import annotations

from ..errors import OomcastError
from .record import EventKind, Trace

__all__ = ["BrokenTrace", "verify"]

_LARGEST = 1 << 80
"""Bytes: far beyond any machine, and still a number that shares of it can be computed with."""


class BrokenTrace(OomcastError):
    """A trace that cannot have happened. The fault is its producer's, not the user's."""


def verify(trace: Trace) -> None:
    """Raise `BrokenTrace`, naming the first promise that does not hold."""
    for index, allocation in enumerate(trace.allocations):
        if allocation.nbytes < 0:
            raise BrokenTrace(f"allocation {index} has a negative size of {allocation.nbytes} bytes.")
        if allocation.nbytes > _LARGEST:
            raise BrokenTrace(f"allocation {index} has a size that no machine can have.")
    _verify_events(trace)
    last = 0
    for number, mark in enumerate(trace.marks):
        if not last <= mark.position <= len(trace.events):
            raise BrokenTrace(f"mark {number} at event {mark.position} is out of order or beyond the last event.")
        last = mark.position


def _verify_events(trace: Trace) -> None:
    unseen, live, freed, let_go = 0, 1, 2, 3
    state = bytearray(len(trace.allocations))
    # Nearly all events make or free something; members of an enumeration are slow to look up.
    allocate, free, count = EventKind.ALLOCATE, EventKind.FREE, len(state)
    for position, (kind, index) in enumerate(trace.events):
        if kind is allocate and 0 <= index < count and state[index] == unseen:
            state[index] = live
        elif kind is free and 0 <= index < count and state[index] in (live, let_go):
            state[index] = freed
        elif kind == EventKind.KERNEL:
            if not 0 <= index < len(trace.kernels):
                raise BrokenTrace(f"event {position} names kernel {index} of {len(trace.kernels)}.")
        elif kind == EventKind.EMPTY_CACHE:
            if index != 0:
                raise BrokenTrace(f"event {position} empties the cache with index {index} instead of 0.")
        elif not 0 <= index < len(state):
            raise BrokenTrace(f"event {position} names allocation {index} of {len(state)}.")
        elif kind == EventKind.ALLOCATE:
            if state[index] != unseen:
                raise BrokenTrace(f"event {position} allocates allocation {index} a second time.")
            state[index] = live
        elif kind == EventKind.LET_GO:
            if state[index] != live:
                raise BrokenTrace(f"event {position} lets allocation {index} go, which is not in use.")
            state[index] = let_go
        elif kind == EventKind.FREE:
            if state[index] == unseen:
                raise BrokenTrace(f"event {position} frees allocation {index} before it is allocated.")
            if state[index] == freed:
                raise BrokenTrace(f"event {position} frees allocation {index} a second time.")
            state[index] = freed
        else:
            raise BrokenTrace(f"event {position} is of no known kind ({kind}).")
