"""Runs the cases of a campaign that have no result yet; a campaign that was interrupted goes on where it was."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ...database import StoreUnavailable
from .case_run import Conditions
from .engines import Engine, LocalEngine, Session
from .measurement import CaseSpec, Measurement, Outcome
from .processes import new_marker
from .store import Store

__all__ = ["Progress", "run_campaign"]

_WINDOW = 500
_LOOK_AT_OTHERS_EVERY = 1.0
_COLLECT_SECONDS = 0.2


@dataclass(frozen=True)
class Progress:
    """How far a campaign is, told after every change."""

    done: int
    total: int
    running: int
    """Here; cases that other runners have claimed count as neither running nor done."""
    failed: int
    """Cases of this run that did not end well."""
    seconds: float
    eta_seconds: float | None
    """None until this run has finished a case."""
    waiting: bool = False
    """Nothing runs here, because the memory or the device that a case needs is taken by others."""


def run_campaign(
    cases: Iterable[CaseSpec],
    store: Store,
    engine: Engine | None = None,
    *,
    conditions: Conditions | None = None,
    progress: Callable[[Progress], None] | None = None,
    silent_seconds: float = 120.0,
    total_seconds: float | None = None,
) -> int:
    """Measure every case that has no result yet, and return how many this run has measured.

    May be killed at any moment and started again: finished cases are not repeated, one that was under way is. Several
    runs may share a store; each case is run by one of them. Returns when all cases are done, also those of others: if
    one of those dies (its process on this host, or no sign for `silent_seconds` on another), its cases are taken over.
    After `total_seconds` no case is started any more; those under way are finished, the rest stays open.
    Ctrl-C ends the cases under way and gives them back.
    """
    campaign = _Campaign(cases, store, progress)
    runner = store.start_runner()
    with _heartbeat(store, runner, silent_seconds / 6), _handed_back(store, runner):
        store.free_abandoned(silent_seconds)
        with (engine or LocalEngine()).start(conditions or Conditions()) as session:
            campaign.run(session, runner, silent_seconds, total_seconds)
    return campaign.finished_here


class _Campaign:
    """Which cases still wait (`_pending`), run here (`_running`) or at others (`_elsewhere`); the rest is done."""

    def __init__(self, cases: Iterable[CaseSpec], store: Store, progress: Callable[[Progress], None] | None) -> None:
        self._cases = {case.key: case for case in cases}
        self._store = store
        self._progress = progress
        store.register(self._cases.values())
        self._pending = dict(self._cases)
        self._running: set[str] = set()
        self._elsewhere: set[str] = set()
        self._started = time.monotonic()
        self._looked_at_others = 0.0
        self._failed = 0
        self.finished_here = 0

    def run(self, session: Session, runner: str, silent_seconds: float, total_seconds: float | None = None) -> None:
        end = math.inf if total_seconds is None else self._started + total_seconds
        self._sort_out(list(self._pending))
        self._tell()
        try:
            while self._running or ((self._pending or self._elsewhere) and time.monotonic() < end):
                if time.monotonic() < end:
                    self._start_cases(session, runner)
                for measurement in session.collect(_COLLECT_SECONDS):
                    self._finish(measurement)
                if self._elsewhere and not self._pending:
                    self._look_at_others(silent_seconds)
        except StoreUnavailable:
            self._save_running(session)
            raise

    def _start_cases(self, session: Session, runner: str) -> None:
        while self._pending:
            device = next(iter(self._pending.values())).device
            if not session.has_room(device):
                if not self._running:
                    self._tell(waiting=True)
                    time.sleep(_COLLECT_SECONDS)
                return
            window = self._window(device)
            marker = new_marker()
            key = self._store.claim(window, runner, marker)
            if key is None:
                self._sort_out(window)
                continue
            case = self._pending.pop(key)
            self._running.add(key)
            session.submit(case, marker)
            self._tell()

    def _window(self, device: str) -> list[str]:
        """The next cases for one device; a bounded number, however long the campaign is."""
        keys = []
        for key, case in self._pending.items():
            if case.device == device:
                keys.append(key)
            if len(keys) == _WINDOW:
                break
        return keys

    def _sort_out(self, keys: list[str]) -> None:
        """Put pending cases that another runner has, or that are done, where they belong."""
        for key, state in self._store.states(keys).items():
            if state != "open":
                self._pending.pop(key, None)
            if state == "claimed":
                self._elsewhere.add(key)

    def _look_at_others(self, silent_seconds: float) -> None:
        now = time.monotonic()
        if now - self._looked_at_others < _LOOK_AT_OTHERS_EVERY:
            if not self._running:
                time.sleep(_COLLECT_SECONDS)
            return
        self._looked_at_others = now
        self._store.free_abandoned(silent_seconds)
        for key, state in self._store.states(list(self._elsewhere)).items():
            if state == "claimed":
                continue
            self._elsewhere.discard(key)
            if state == "open":
                self._pending[key] = self._cases[key]
        self._tell()

    def _finish(self, measurement: Measurement) -> None:
        key = measurement.case.key
        try:
            self._store.finish(measurement)
        finally:
            self._running.discard(key)
        self.finished_here += 1
        self._failed += measurement.outcome is not Outcome.OK
        self._tell()

    def _save_running(self, session: Session) -> None:
        """The database is gone, but what runs is worth keeping: each result goes to the local spool."""
        while self._running:
            for measurement in session.collect(_COLLECT_SECONDS):
                with contextlib.suppress(StoreUnavailable):
                    self._finish(measurement)

    def _tell(self, *, waiting: bool = False) -> None:
        if self._progress is None:
            return
        left = len(self._pending) + len(self._running) + len(self._elsewhere)
        seconds = time.monotonic() - self._started
        eta = seconds / self.finished_here * left if self.finished_here else None
        total = len(self._cases)
        self._progress(Progress(total - left, total, len(self._running), self._failed, seconds, eta, waiting))


@contextlib.contextmanager
def _heartbeat(store: Store, runner: str, every: float) -> Iterator[None]:
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(every):
            # A database that is away will be noticed, and told, where a result is written.
            with contextlib.suppress(StoreUnavailable):
                store.heartbeat(runner)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextlib.contextmanager
def _handed_back(store: Store, runner: str) -> Iterator[None]:
    try:
        yield
    finally:
        with contextlib.suppress(StoreUnavailable):
            store.end_runner(runner)
