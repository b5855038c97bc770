"""Where captures run: in processes of this machine, several at once where more than one is expected, or on the machines
of a Ray cluster.

An engine that was told what to expect begins with it at once, so that whoever asks one by one, and decides by each
answer whether to ask for the next, waits less. What comes out is the same.
"""

from __future__ import annotations

import contextlib
import functools
import os
import queue
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from ..children import forget_in_forks
from ..errors import OomcastError
from ..spec import JobKind, Spec
from ..trace import Trace
from .client import capture_here, interrupt

__all__ = ["OF_THIS_PROCESS", "Engine", "LocalEngine", "engine_named", "limit_captures_at_once"]

OF_THIS_PROCESS = (JobKind.OBJECT, JobKind.SCRIPT)
"""They have its objects, or its environment: they are captured by whoever asks, on this machine."""
_MOST_LANES = 4
"""Each has a process with its framework loaded: 0.3 to 0.6 GB."""


class Engine(Protocol):
    """Captures jobs. Used by one thread."""

    at_once: int

    def expect(self, spec: Spec) -> None:
        """Begin with a capture that will be asked for."""

    def capture(self, spec: Spec) -> Trace:
        """The Trace, from the capture that was begun if there is one. Raises as `capture` does."""

    def drop(self, specs: Iterable[Spec]) -> None:
        """End those that were begun and not asked for."""


@functools.cache
def engine_named(name: str) -> Engine:
    """`local`, `ray` or the address of a cluster."""
    if name == "local":
        return LocalEngine()
    from .on_cluster import ClusterEngine

    return ClusterEngine("auto" if name == "ray" else name)


def limit_captures_at_once(most: int) -> None:
    """For a process that is itself one of several: on this machine, it captures no more than that many jobs at once."""
    engine_named("local").at_once = most


class LocalEngine:
    """Captures that nobody expected are made by the caller's own thread, until there are lanes."""

    def __init__(self) -> None:
        self.at_once = min(os.cpu_count() or 1, _MOST_LANES)
        self._begun: dict[Spec, Future[Trace]] = {}
        self._lanes: dict[Spec, int] = {}
        """Of the captures that are being made."""
        self._free_lanes: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        forget_in_forks(self)

    def expect(self, spec: Spec) -> None:
        if self.at_once > 1 and spec not in self._begun:
            self._begun[spec] = self._pool().submit(self._capture_in_lane, spec)

    def capture(self, spec: Spec) -> Trace:
        if self._threads is None or self.at_once == 1 or spec.workload.job.kind in OF_THIS_PROCESS:
            return capture_here(spec)
        self.expect(spec)
        try:
            trace = self._begun[spec].result()
        except OomcastError:
            del self._begun[spec]
            raise
        except BaseException:  # Ctrl-C: nobody wants it any more
            self.drop([spec])
            raise
        del self._begun[spec]
        return trace

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.at_once)
            for lane in range(self.at_once):
                self._free_lanes.put(lane)
        return self._threads

    def _capture_in_lane(self, spec: Spec) -> Trace:
        lane = self._lanes[spec] = self._free_lanes.get()
        try:
            return capture_here(spec, lane)
        finally:
            del self._lanes[spec]
            self._free_lanes.put(lane)

    def drop(self, specs: Iterable[Spec]) -> None:
        begun = {spec: self._begun.pop(spec) for spec in specs if spec in self._begun}
        running = {spec: future for spec, future in begun.items() if not future.cancel()}
        while any(not future.done() for future in running.values()):
            for spec, future in running.items():
                lane = self._lanes.get(spec)
                if lane is not None:  # its process may not have been started yet: so again, until it has ended
                    interrupt(lane)
                with contextlib.suppress(Exception):
                    future.result(timeout=0.05)

    def close(self) -> None:
        """End what is left, and the threads."""
        self.drop(list(self._begun))
        if self._threads is not None:
            self._threads.shutdown()

    def forget(self) -> None:
        """In a fork: the threads are the parent's."""
        self._begun, self._lanes, self._free_lanes, self._threads = {}, {}, queue.SimpleQueue(), None
