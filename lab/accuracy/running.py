"""Runs estimators on cases: captures are cached, answers are cached, so what was stopped goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from oomcast.errors import OomcastError, UnknownName
from oomcast.provenance import TRACE_ROOMS, source_digest
from oomcast.trace import Trace

from .baselines import BASELINES
from .cases import Case
from .features import Features, features_of
from .formulas import FORMULAS
from .mem_tracker import Tracked, track
from .simulators import SIMULATORS, Prediction
from .traces import TraceCache, capturing_code, trace_key

__all__ = ["ESTIMATORS", "LINEAR_FIT", "MEM_TRACKER", "Result", "Timed", "check_estimators", "run_cases", "sample"]

LINEAR_FIT = "linear fit"
MEM_TRACKER = "mem-tracker"
ESTIMATORS: tuple[str, ...] = (*SIMULATORS, *BASELINES, *FORMULAS, MEM_TRACKER, LINEAR_FIT)
_JUDGING = (*TRACE_ROOMS, "oomcast.estimation", "oomcast.methods.gpumemnet", "lab.accuracy")
"""The packages that decide an answer."""


@dataclass(frozen=True)
class Timed:
    """A simulator's answer, and the seconds it took after the capture."""

    prediction: Prediction
    seconds: float


@dataclass(frozen=True)
class Result:
    """All that was computed for a case; `error` says why nothing was."""

    case: Case
    features: Features | None = None
    answers: dict[str, Timed] = field(default_factory=dict)
    capture_seconds: float = 0.0
    error: str = ""
    tracked: Tracked | None = None
    """What torch's MemTracker said, where it was asked."""


def check_estimators(names: Iterable[str]) -> tuple[str, ...]:
    wanted = tuple(names)
    for name in wanted:
        if name not in ESTIMATORS:
            raise UnknownName("estimator", name, ESTIMATORS)
    return wanted


def sample(cases: Sequence[Case], rows: int | None, seed: int = 0) -> tuple[Case, ...]:
    """At most `rows` cases, the families in turn, the same ones every time."""
    if rows is None or rows >= len(cases):
        return tuple(cases)
    families: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        families[case.family].append(case)
    order = sorted(families)
    for family in order:
        random.Random(f"{seed} {family}").shuffle(families[family])
    random.Random(seed).shuffle(order)
    chosen: list[Case] = []
    while len(chosen) < rows:
        for family in order:
            if families[family] and len(chosen) < rows:
                chosen.append(families[family].pop())
    return tuple(chosen)


def run_cases(
    cases: Sequence[Case],
    estimators: Sequence[str],
    folder: Path,
    *,
    processes: int = 1,
    accept_stale: bool = False,
) -> Iterator[Result]:
    """Evaluate the simulators among `estimators` on every case, in the cases' order, one by one as they are done."""
    names = tuple(name for name in estimators if name in SIMULATORS)
    worker = _Worker(folder, names, MEM_TRACKER in estimators, accept_stale)
    if processes <= 1:
        yield from map(worker, cases)
        return
    # Spawned, not forked: torch's threads do not survive a fork that goes on computing.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(worker, cases)


class _Worker:
    """One case at a time; goes to other processes whole."""

    def __init__(self, folder: Path, names: tuple[str, ...], tracking: bool, accept_stale: bool) -> None:
        self.folder = folder
        self.names = names
        self.tracking = tracking
        self.accept_stale = accept_stale

    def __call__(self, case: Case) -> Result:
        result = self._simulated(case)
        return replace(result, tracked=self._tracked(case)) if self.tracking else result

    def _tracked(self, case: Case) -> Tracked:
        """MemTracker knows no GPU: its answer is kept by workload alone."""
        path = self.folder / "tracked" / f"{trace_key(case)}-{capturing_code(case)}.json"
        try:
            return Tracked(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            _load_framework(case)
        tracked = track(case.workload, case.spec.place.machines.world_size)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(tracked._asdict()), encoding="utf-8")
        return tracked

    def _simulated(self, case: Case) -> Result:
        cache = TraceCache(self.folder, self.accept_stale)
        known = self._known(case, cache.kept(case))
        if known is not None and len(known.answers) == len(self.names):
            return known
        if cache.kept(case) is None:
            _load_framework(case)
        captured = cache.get(case)
        kept = cache.kept(case)
        if captured.trace is None or kept is None:
            return Result(case, capture_seconds=captured.seconds, error=captured.error)
        features = features_of(captured.trace)
        answers = dict(known.answers) if known is not None else {}
        self._write(case, kept, "features", {"features": asdict(features), "seconds": captured.seconds})
        try:
            for name in self.names:
                if name not in answers:
                    answers[name] = self._answer(case, kept, captured.trace, name)
        except OomcastError as error:
            return Result(case, features, answers, captured.seconds, str(error))
        return Result(case, features, answers, captured.seconds)

    def _answer(self, case: Case, kept: Path, trace: Trace, name: str) -> Timed:
        started = time.perf_counter()
        timed = Timed(SIMULATORS[name](case, trace), round(time.perf_counter() - started, 4))
        self._write(case, kept, name, {"prediction": asdict(timed.prediction), "seconds": timed.seconds})
        return timed

    def _known(self, case: Case, kept: Path | None) -> Result | None:
        """What was answered before, for this trace and by this code."""
        if kept is None:
            return None
        answers = {}
        try:
            told = self._read(case, kept, "features")
            for name in self.names:
                if self._path(case, kept, name).is_file():
                    answer = self._read(case, kept, name)
                    answers[name] = Timed(Prediction(**answer["prediction"]), answer["seconds"])
            return Result(case, Features(**told["features"]), answers, float(told["seconds"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _path(self, case: Case, kept: Path, name: str) -> Path:
        told = "" if case.alloc_conf is None else f"-{case.alloc_conf.replace(':', '_')}"
        judged = f"{case.stack}-{case.cudnn_benchmark:d}{case.measure.name[0]}{case.more_context}{told}"
        stem = f"{kept.stem}-{judged}-{name.replace(' ', '_')}-{source_digest(*_JUDGING)}"
        return self.folder / "answers" / f"{stem}.json"

    def _write(self, case: Case, kept: Path, name: str, content: dict[str, object]) -> None:
        path = self._path(case, kept, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    def _read(self, case: Case, kept: Path, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self._path(case, kept, name).read_text(encoding="utf-8"))
        return content


def _load_framework(case: Case) -> None:
    """Only where something must be captured: answers that are there need no torch."""
    from .warm import warm_up

    warm_up(case)
