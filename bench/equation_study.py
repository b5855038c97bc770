"""Every method on the same random 70/30 splits of the same runs: errors, times, equations; kept, so that it resumes."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import oomcast.learn
from oomcast.learn import SearchConfig, SymbolicRegression
from oomcast.learn.baselines import BASELINES, baseline

from . import equation_analytic
from .equation_runs import Sample

__all__ = ["ANALYTIC", "HALF", "METHODS", "PUBLISHED", "SPLITS", "SYMBOLIC", "Study", "run_study"]

SPLITS = 20
SYMBOLIC, HALF, PUBLISHED = "symbolic", "symbolic, half of the training runs", "published search (DEAP)"
ANALYTIC = {
    "analytic, as printed": equation_analytic.as_printed,
    "analytic, rebuilt": equation_analytic.rebuilt,
}
METHODS = (SYMBOLIC, HALF, *BASELINES, *ANALYTIC, PUBLISHED)
NAMES = ("edge", "batch_size")
_TRAINING = 0.7


@dataclass(frozen=True)
class Split:
    """One method on one split."""

    error: float
    """Mean absolute percentage error on the runs kept out, as a share."""
    seconds: float
    """Of the processor, all threads together: other work on the machine does not count."""
    equation: str


@dataclass(frozen=True)
class Study:
    """All methods on the runs of one framework."""

    samples: Sequence[Sample]
    splits: dict[str, list[Split]]

    def median(self, method: str) -> float:
        return statistics.median(split.error for split in self.splits[method])

    def worst(self, method: str) -> float:
        return max(split.error for split in self.splits[method])

    def speed_ratio(self) -> float:
        """How many times as long the published search computes as the default engine, on the same splits."""
        published = self.splits[PUBLISHED]
        ours = self.splits[SYMBOLIC][: len(published)]
        return sum(one.seconds for one in published) / sum(one.seconds for one in ours)


def run_study(
    samples: Sequence[Sample], kept: Path, tell: Callable[[str, int, int], None], published_splits: int
) -> Study:
    """`kept` is the file of results; it counts for these samples and these learners only."""
    digest = _digest(samples)
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    if found.get("digest") != digest:
        found = {"digest": digest, "splits": {}}
    wanted = [
        (method, number)
        # The two searches one after the other, so that a busy machine slows both.
        for number in range(SPLITS)
        for method in METHODS
        if method != PUBLISHED or number < published_splits
    ]
    for done, (method, number) in enumerate(wanted):
        name = f"{method}, split {number}"
        if name not in found["splits"]:
            tell(name, done, len(wanted))
            found["splits"][name] = vars(_judged(method, samples, number))
            kept.write_text(json.dumps(found, indent=1), encoding="utf-8")
    splits: dict[str, list[Split]] = {}
    for method, number in wanted:
        splits.setdefault(method, []).append(Split(**found["splits"][f"{method}, split {number}"]))
    return Study(samples, splits)


def _judged(method: str, samples: Sequence[Sample], number: int) -> Split:
    order = random.Random(number).sample(range(len(samples)), len(samples))
    count = round(_TRAINING * len(order))
    training, test = ([samples[i] for i in part] for part in (order[:count], order[count:]))
    if method == HALF:
        training = training[: (count + 1) // 2]
    started = time.process_time()
    model, equation = _fitted(method, training, number)
    seconds = time.process_time() - started
    errors = [abs(peak / sample.peak - 1) for peak, sample in zip(model(test), test, strict=True)]
    return Split(float(sum(errors) / len(errors)), seconds, equation)


def _fitted(method: str, training: Sequence[Sample], seed: int) -> tuple[Callable[[Sequence[Sample]], Any], str]:
    if method in ANALYTIC:
        return lambda samples: [ANALYTIC[method](one.edge, one.batch_size) for one in samples], ""
    learner: Any
    if method in BASELINES:
        learner = baseline(method, seed=seed)
    else:
        published = SearchConfig.published(seed) if method == PUBLISHED else None
        learner = SymbolicRegression(seed=seed, config=published)
    x, y = _rows(training), [float(sample.peak) for sample in training]
    if method in BASELINES:
        learner.fit(x, y)
        return lambda samples: learner.predict(_rows(samples)), ""
    learner.fit(x, y, NAMES)
    return lambda samples: learner.predict(_rows(samples)), learner.equation_.text()


def _rows(samples: Sequence[Sample]) -> list[list[float]]:
    return [[float(sample.edge), float(sample.batch_size)] for sample in samples]


def _digest(samples: Sequence[Sample]) -> str:
    found = hashlib.sha256(repr([(one.edge, one.batch_size, one.peak) for one in samples]).encode())
    folder = Path(oomcast.learn.__file__).parent
    for file in (folder / "baselines.py", *sorted((folder / "symbolic").glob("*.py"))):
        found.update(file.read_bytes())
    return found.hexdigest()
