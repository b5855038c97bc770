"""Cases on this machine, several at a time where memory and GPUs allow."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from oomcast.errors import BadInput
from oomcast.units import format_bytes

from ..case_run import Conditions, measure_case, usable_memory
from ..environment import check_framework
from ..gpu import Gpu, GpuReader, gpu_for, known_reader, visible_gpus
from ..measurement import CaseSpec, Limits, Measurement
from ..processes import available_memory, total_memory
from ..watch import Cancelled

__all__ = ["Engine", "LocalEngine", "Session"]

# First, what a campaign asks of any place where its cases run.


class Session(Protocol):
    """Cases under way. Used by one thread."""

    def has_room(self, device: str) -> bool:
        """Whether one more case for `device` may start now."""

    def submit(self, case: CaseSpec, marker: str) -> None:
        """Start a case."""

    def collect(self, timeout: float) -> list[Measurement]:
        """Cases that have ended; waits at most `timeout` seconds for one. Raises what kept a case from running."""


class Engine(Protocol):
    """Opens sessions; leaving one ends whatever still runs in it."""

    def start(self, conditions: Conditions) -> AbstractContextManager[Session]: ...


@dataclass(frozen=True)
class LocalEngine:
    """`workers` cases at a time on a CPU, one per GPU. A case is only started when its memory limit is free."""

    workers: int = 1
    reader: GpuReader | None = None
    """Where figures of GPUs come from; None looks for NVML, then for nvidia-smi."""

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise BadInput(f"the number of workers must be at least 1, not {self.workers!r}.")

    @contextlib.contextmanager
    def start(self, conditions: Conditions) -> Iterator[_LocalSession]:
        limit = conditions.limits.bytes
        if limit is None:
            limit = max(1, usable_memory() // self.workers)
        elif limit > total_memory():
            raise BadInput(
                f"the memory limit of a case, {format_bytes(limit)}, is more than this machine has, "
                f"{format_bytes(total_memory())}."
            )
        fixed = replace(conditions, limits=Limits(conditions.limits.seconds, limit))
        session = _LocalSession(fixed, limit, self.workers, self.reader)
        try:
            yield session
        finally:
            session.close()


@dataclass
class _Running:
    device: str
    gpu: Gpu | None
    held: int = 0


class _LocalSession:
    def __init__(self, conditions: Conditions, limit: int, workers: int, reader: GpuReader | None) -> None:
        self._conditions = conditions
        self._limit = limit
        self._workers = workers
        self._given_reader = reader
        self._cancel = threading.Event()
        self._ended: queue.SimpleQueue[tuple[str, Measurement | BaseException]] = queue.SimpleQueue()
        self._running: dict[str, _Running] = {}
        self._threads: list[threading.Thread] = []

    def has_room(self, device: str) -> bool:
        if device == "cpu":
            if sum(case.device == "cpu" for case in self._running.values()) >= self._workers:
                return False
        elif self._free_gpu(device) is None:
            return False
        promised = sum(max(0, self._limit - case.held) for case in self._running.values())
        return available_memory() - promised >= self._limit

    def submit(self, case: CaseSpec, marker: str) -> None:
        check_framework(case.framework, self._conditions.interpreter(case.framework))
        running = _Running(case.device, None if case.device == "cpu" else self._free_gpu(case.device))
        self._running[case.key] = running
        # The kernel ends a case with the thread that started it, so each has a thread of its own until it ends.
        thread = threading.Thread(target=self._measure, args=(case, running, marker), daemon=True)
        self._threads = [t for t in self._threads if t.is_alive()] + [thread]
        thread.start()

    def collect(self, timeout: float) -> list[Measurement]:
        measured: list[Measurement] = []
        with contextlib.suppress(queue.Empty):
            while True:
                key, result = self._ended.get(timeout=timeout) if not measured else self._ended.get_nowait()
                if isinstance(result, BaseException) and measured:
                    self._ended.put((key, result))  # what others have measured goes first
                    break
                del self._running[key]
                if isinstance(result, BaseException):
                    raise result
                measured.append(result)
        return measured

    def close(self) -> None:
        """Kill what runs, and wait until it is gone."""
        self._cancel.set()
        for thread in self._threads:
            thread.join()

    def _measure(self, case: CaseSpec, running: _Running, marker: str) -> None:
        def observe(held: int) -> None:
            running.held = held

        result: Measurement | BaseException
        try:
            result = measure_case(
                case,
                self._conditions,
                cancel=self._cancel,
                gpu=running.gpu,
                reader=self._reader() if running.gpu is not None else None,
                marker=marker,
                observe=observe,
            )
        except Cancelled:
            return
        except BaseException as error:
            result = error
        self._ended.put((case.key, result))

    def _free_gpu(self, device: str) -> Gpu | None:
        reader = self._reader()
        busy = {case.gpu for case in self._running.values()}
        fitting = gpu_for(device, visible_gpus(reader) if reader is not None else ())
        return next((gpu for gpu in fitting if gpu not in busy), None)

    def _reader(self) -> GpuReader | None:
        return self._given_reader or known_reader()
