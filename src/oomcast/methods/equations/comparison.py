"""Every method on the same random splits of the same runs: errors, seconds and equations, kept so that it resumes."""

from __future__ import annotations

import hashlib
import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import BadInput, UnknownName
from ...files import write_atomically
from ...provenance import source_digest
from .analytic import ANALYTIC, applies_to
from .baselines import BASELINES, baseline
from .memory_equation import EquationRow, table_of, variables_of
from .symbolic import SearchConfig, SymbolicRegression

__all__ = ["HALF", "METHODS", "PUBLISHED", "SYMBOLIC", "Comparison", "Split", "compare", "methods_for"]

SYMBOLIC, HALF, PUBLISHED = "symbolic", "symbolic, half of the training runs", "published search (DEAP)"
METHODS = (SYMBOLIC, HALF, *BASELINES, *ANALYTIC, PUBLISHED)
_LEARNERS = ("oomcast.methods.equations.symbolic",)
_LEAST_ROWS = 10


@dataclass(frozen=True)
class Split:
    """One method on one split."""

    error: float
    """Mean absolute percentage error on the runs kept out, as a share."""
    rmse: float
    """Root of the mean squared error on them, bytes."""
    seconds: float
    """Of the processor, all threads together: other work on the machine does not count."""
    equation: str


@dataclass(frozen=True)
class Comparison:
    """All methods on the same splits; a method that computes long may have had fewer of them."""

    splits: dict[str, list[Split]]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Methods that cannot be fitted to so few runs → why."""

    def median(self, method: str) -> float:
        return statistics.median(split.error for split in self.splits[method])

    def worst(self, method: str) -> float:
        return max(split.error for split in self.splits[method])

    def rmse(self, method: str) -> float:
        return statistics.median(split.rmse for split in self.splits[method])

    def seconds(self, method: str) -> float:
        return statistics.median(split.seconds for split in self.splits[method])

    def speed_ratio(self) -> float:
        """How many times as long the published search computes as the default engine, on the same splits."""
        published = self.splits[PUBLISHED]
        ours = self.splits[SYMBOLIC][: len(published)]
        return sum(split.seconds for split in published) / sum(split.seconds for split in ours)


def methods_for(rows: Sequence[EquationRow], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Those asked for; else all that can be fitted to these runs: the hand-made model is one of a 3D U-Net."""
    for name in wanted or ():
        if name not in METHODS:
            raise UnknownName("method", name, METHODS, f"There are {', '.join(METHODS)}.")
    handmade = applies_to(rows)
    if wanted and not handmade and (refused := [name for name in wanted if name in ANALYTIC]):
        raise BadInput(f"the method {refused[0]!r} is of the template unet3d with edge and batch_size alone.")
    return tuple(wanted or (name for name in METHODS if handmade or name not in ANALYTIC))


def compare(
    rows: Sequence[EquationRow],
    *,
    methods: Sequence[str] | None = None,
    variables: Sequence[str] | None = None,
    splits: int = 20,
    published_splits: int = 3,
    training: float = 0.7,
    kept: Path | None = None,
    tell: Callable[[str, int, int], None] = lambda words, done, total: None,
) -> Comparison:
    """Each split learns from the same random share of the runs and is judged on the others.

    `kept` is a file of the results so far; it counts for these runs and this code only.
    """
    if len(rows) < _LEAST_ROWS:
        raise BadInput(f"{len(rows)} runs are too few to compare methods on; at least {_LEAST_ROWS} are needed.")
    if splits < 1 or not 0 < training < 1:
        raise BadInput("there must be at least 1 split, and the share to learn from must lie between 0 and 1.")
    names, chosen = variables_of(rows, "parameters", variables), methods_for(rows, methods)
    found = _before(kept, rows, names, training)
    wanted = [
        (method, number)
        # The two searches one after the other, so that a busy machine slows both.
        for number in range(splits)
        for method in chosen
        if method != PUBLISHED or number < published_splits
    ]
    left_out: dict[str, str] = {}
    for done, (method, number) in enumerate(wanted):
        name = f"{method}, split {number}"
        if name in found["splits"] or method in left_out:
            continue
        tell(name, done, len(wanted))
        try:
            found["splits"][name] = vars(_judged(method, rows, names, number, training))
        except ValueError as error:
            left_out[method] = str(error)
            continue
        if kept is not None:
            write_atomically(kept, json.dumps(found, indent=1).encode())
    if len(left_out) == len(chosen):
        raise BadInput(f"these runs are too few to compare methods on: {next(iter(left_out.values()))}.")
    by_method: dict[str, list[Split]] = {}
    for method, number in wanted:
        if method not in left_out:
            by_method.setdefault(method, []).append(Split(**found["splits"][f"{method}, split {number}"]))
    return Comparison(by_method, left_out)


def _before(kept: Path | None, rows: Sequence[EquationRow], names: Sequence[str], training: float) -> dict[str, Any]:
    plain = repr([table_of(rows, names), training, source_digest(*_LEARNERS)])
    digest = hashlib.sha256(plain.encode()).hexdigest()
    try:
        found = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else {}
    except ValueError:
        found = {}
    return found if isinstance(found, dict) and found.get("digest") == digest else {"digest": digest, "splits": {}}


def _judged(method: str, rows: Sequence[EquationRow], names: Sequence[str], number: int, training: float) -> Split:
    order = random.Random(number).sample(range(len(rows)), len(rows))
    count = round(training * len(order))
    learnt, test = ([rows[i] for i in part] for part in (order[:count], order[count:]))
    if method == HALF:
        learnt = learnt[: (count + 1) // 2]
    started = time.process_time()
    predict, equation = _fitted(method, learnt, names, number)
    seconds = time.process_time() - started
    pairs = [(float(found), row.measured) for found, row in zip(predict(test), test, strict=True)]
    return Split(
        sum(abs(found / truth - 1) for found, truth in pairs) / len(pairs),
        (sum((found - truth) ** 2 for found, truth in pairs) / len(pairs)) ** 0.5,
        seconds,
        equation,
    )


def _fitted(
    method: str, learnt: Sequence[EquationRow], names: Sequence[str], seed: int
) -> tuple[Callable[[Sequence[EquationRow]], Any], str]:
    if method in ANALYTIC:
        model = ANALYTIC[method]
        return lambda rows: [model(int(r.parameters["edge"]), int(r.parameters["batch_size"])) for r in rows], ""
    x, y = table_of(learnt, names)
    if method in BASELINES:
        regression = baseline(method, seed=seed)
        regression.fit(x, y)
        return lambda rows: regression.predict(table_of(rows, names)[0]), ""
    published = SearchConfig.published(seed) if method == PUBLISHED else None
    search = SymbolicRegression(seed=seed, config=published).fit(x, y, names)
    return lambda rows: search.predict(table_of(rows, names)[0]), search.equation_.text()
