"""Runs estimators on cases: captures are cached, answers are cached, so what was stopped goes on where it was."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..errors import OomcastError, UnknownName
from ..trace import Trace
from ._baselines import BASELINES
from ._cases import Case
from ._features import Features, features_of
from ._simulators import SIMULATORS, Prediction
from ._traces import Captured, TraceCache, source_digest, trace_key

__all__ = ["ESTIMATORS", "LINEAR_FIT", "Result", "Timed", "check_estimators", "run_cases", "sample"]

LINEAR_FIT = "linear fit"
ESTIMATORS: tuple[str, ...] = (*SIMULATORS, *BASELINES, LINEAR_FIT)
_JUDGING = ("simulate", "devices", "estimate", "accuracy/_simulators.py", "accuracy/_features.py")


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
    on_result: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """Evaluate the simulators among `estimators` on every case, in the cases' order."""
    names = [name for name in estimators if name in SIMULATORS]
    results = []
    for result in _results(cases, names, folder, processes, accept_stale):
        on_result(result)
        results.append(result)
    return results


def _results(
    cases: Sequence[Case], names: Sequence[str], folder: Path, processes: int, accept_stale: bool
) -> Iterator[Result]:
    worker = _Worker(folder, tuple(names), accept_stale)
    if processes <= 1:
        yield from map(worker, cases)
        return
    # Spawned, not forked: torch's threads do not survive a fork that goes on computing.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(worker, cases)


class _Worker:
    """One case at a time; goes to other processes whole."""

    def __init__(self, folder: Path, names: tuple[str, ...], accept_stale: bool) -> None:
        self.folder = folder
        self.names = names
        self.accept_stale = accept_stale

    def __call__(self, case: Case) -> Result:
        known = [self._read(case, name) for name in self.names]
        features = self._read_features(case)
        answers = {name: timed for name, timed in zip(self.names, known, strict=True) if timed is not None}
        if features is not None and len(answers) == len(self.names):
            return Result(case, features[0], answers, features[1])
        captured = self._capture(case)
        if captured.trace is None:
            return Result(case, capture_seconds=captured.seconds, error=captured.error)
        found = features_of(captured.trace)
        self._write(case, "features", {"features": asdict(found), "seconds": captured.seconds})
        try:
            for name in self.names:
                if name not in answers:
                    answers[name] = self._answer(case, captured.trace, name)
        except OomcastError as error:
            return Result(case, found, answers, captured.seconds, str(error))
        return Result(case, found, answers, captured.seconds)

    def _capture(self, case: Case) -> Captured:
        from ._warm import warm_up

        cache = TraceCache(self.folder, self.accept_stale)
        if not cache.holds(case):
            warm_up(case)
        return cache.get(case)

    def _answer(self, case: Case, trace: Trace, name: str) -> Timed:
        started = time.perf_counter()
        timed = Timed(SIMULATORS[name](case, trace), round(time.perf_counter() - started, 4))
        self._write(case, name, {"prediction": asdict(timed.prediction), "seconds": timed.seconds})
        return timed

    def _path(self, case: Case, name: str) -> Path:
        judged = f"{case.stack}-{case.cudnn_benchmark:d}{case.allow_tf32:d}{case.measure.name[0]}"
        stem = f"{trace_key(case)}-{judged}-{name.replace(' ', '_')}-{source_digest(_JUDGING)}"
        return self.folder / "answers" / f"{stem}.json"

    def _write(self, case: Case, name: str, content: dict[str, object]) -> None:
        path = self._path(case, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    def _read(self, case: Case, name: str) -> Timed | None:
        try:
            told = json.loads(self._path(case, name).read_text(encoding="utf-8"))
            return Timed(Prediction(**told["prediction"]), told["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _read_features(self, case: Case) -> tuple[Features, float] | None:
        try:
            told = json.loads(self._path(case, "features").read_text(encoding="utf-8"))
            return Features(**told["features"]), float(told["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
