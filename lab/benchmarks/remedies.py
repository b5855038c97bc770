"""`python -m lab bench remedies`: the change between published runs that differ by one setting, as predicted.

With `--compiled`, the runs that differ by `torch.compile` alone, under a bar of their own.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from oomcast.errors import BadInput

from ..accuracy import Case, Measure, default_folder
from ..accuracy.sets import DATA_SETS
from ..accuracy.simulators import SIMULATORS, Prediction
from ..accuracy.traces import TraceCache, trace_key
from ..accuracy.warm import warm_up
from .report import Bar, Outcome, as_mib, print_outcome

__all__ = ["Change", "Pair", "pairs", "run", "run_compiled"]

SETS = ("litgpt", "rasbt_memory", "torchtune")
SHOWN = ("hf_docs_bert_large",)
WITHIN = 0.10
COMPILED_SETS = ("torchao", "torchtune", "torchtitan", "torchtitan_qwen3_14b", "torchtitan_tables")
COMPILED_WITHIN = 0.25
COMPILED_SIGNS = 0.95
_COMPILE = "compile"
_SETTINGS = {
    "compile": _COMPILE,
    "compiled": _COMPILE,
    "precision": "precision",
    "bf16": "precision",
    "optimizer": "optimizer",
    "adam_of_2023": "optimizer",
    "lora": "method",
    "adapter": "method",
}
"""Fields of jobs and workloads that say one thing together."""
_ANOTHER_MODEL = {"shape"}
"""What no remedy changes."""


@dataclass(frozen=True)
class Pair:
    """Two measured runs and the one setting that they differ by."""

    before: Case
    after: Case
    setting: str
    words: str

    @property
    def measured(self) -> int:
        assert self.before.measured is not None
        assert self.after.measured is not None
        return self.after.measured - self.before.measured


def pairs(name: str, path: Path) -> list[Pair]:
    cases = [case for case in DATA_SETS[name](path).cases if case.measured is not None]
    found = []
    for before, after in itertools.combinations(cases, 2):
        one, other = _told(before), _told(after)
        differing = [field for field in one | other if one.get(field) != other.get(field)]
        settings = {_SETTINGS.get(field, field) for field in differing}
        if len(settings) == 1 and not settings & _ANOTHER_MODEL and before.measured != after.measured:
            setting = settings.pop()
            words = ", ".join(f"{_short(one.get(field))} → {_short(other.get(field))}" for field in differing)
            found.append(Pair(before, after, setting, words))
    return found


def _pairs_in(folder: Path, names: Sequence[str]) -> list[Pair]:
    """Of the files that are there: a folder need not have them all."""
    there = [name for name in names if (folder / f"{name}.csv").is_file()]
    if not there:
        raise BadInput(f"{folder} has none of the files {', '.join(f'{name}.csv' for name in names)}.")
    return [pair for name in there for pair in pairs(name, folder / f"{name}.csv")]


def _told(case: Case) -> dict[str, Any]:
    """All that decides the case, by field."""
    job = case.workload.job.target
    told = {field.name: getattr(job, field.name) for field in fields(job)} if is_dataclass(job) else {"job": repr(job)}
    options = {key: value for key, value in case.workload.as_dict().items() if key != "job"}
    return {**told, **options, "gpu": case.gpu, "stack": case.stack, "measure": case.measure}


def _short(value: object) -> str:
    return type(value).__name__ if is_dataclass(value) else str(value)


class Change(NamedTuple):
    """What came of a pair."""

    pair: Pair
    predicted: int

    @property
    def error(self) -> float:
        return (self.predicted - self.pair.measured) / abs(self.pair.measured)

    @property
    def has_right_sign(self) -> bool:
        return (self.predicted > 0) == (self.pair.measured > 0)

    def row(self) -> tuple[str, ...]:
        before, after = self.pair.before, self.pair.after
        return (
            before.data,
            f"{before.row} | {after.row.split(' ')[0]}",
            f"{self.pair.setting}: {self.pair.words}",
            as_mib(self.pair.measured),
            as_mib(self.predicted),
            f"{self.error:+.1%}",
        )


def run(groundtruth: Path, cache: Path, show: Callable[[str], None]) -> Outcome:
    found = _pairs_in(groundtruth, (*SETS, *SHOWN))
    changes, failed = _changes((pair for pair in found if pair.setting != _COMPILE), cache, show)
    judged = [change for change in changes if change.pair.before.data in SETS]
    within = sum(abs(change.error) <= WITHIN for change in judged)
    return Outcome(
        "Published runs that differ by one setting: measured change and predicted one",
        _COLUMNS,
        [change.row() for change in changes],
        [Bar(f"within {WITHIN:.0%} of the measured change", f"{within} of {len(judged)}", 0 < len(judged) == within)],
        (
            "litgpt, rasbt and torchtune are judged; of torchtune only one row can be rebuilt, so it has no pair; "
            "the rows of hf_docs_bert_large are nvidia-smi readings and are shown beside them",
            *failed,
        ),
    )


def run_compiled(groundtruth: Path, cache: Path, show: Callable[[str], None]) -> Outcome:
    found = _pairs_in(groundtruth, COMPILED_SETS)
    changes, failed = _changes((pair for pair in found if pair.setting == _COMPILE), cache, show)
    signs = sum(change.has_right_sign for change in changes)
    sizes = sum(abs(change.error) <= COMPILED_WITHIN for change in changes)
    count = len(changes) + len(failed)
    return Outcome(
        "Published runs that differ by torch.compile alone: measured change and predicted one",
        _COLUMNS,
        [change.row() for change in changes],
        [
            Bar(f"sign right in {COMPILED_SIGNS:.0%}", f"{signs} of {count}", 0 < COMPILED_SIGNS * count <= signs),
            Bar(f"within {COMPILED_WITHIN:.0%} of the measured change", f"{sizes} of {count}", 0 < count == sizes),
        ],
        failed,
    )


_COLUMNS = ("set", "rows", "setting", "measured MiB", "predicted MiB", "error")


def _changes(found: Iterable[Pair], cache: Path, show: Callable[[str], None]) -> tuple[list[Change], list[str]]:
    """Of each pair, and what is to be said of those that could not be estimated."""
    traces = TraceCache(cache)
    predictions: dict[str, Prediction | str] = {}
    changes, failed = [], []
    for pair in found:
        one, other = (_predicted(case, traces, predictions) for case in (pair.before, pair.after))
        if isinstance(one, str) or isinstance(other, str):
            failed.append(f"{pair.before.name}: {one if isinstance(one, str) else other}")
            show(failed[-1])
            continue
        changes.append(Change(pair, _figure(pair.after, other) - _figure(pair.before, one)))
        show(" ".join(changes[-1].row()))
    return changes, failed


def _predicted(case: Case, traces: TraceCache, known: dict[str, Prediction | str]) -> Prediction | str:
    key = f"{trace_key(case)} {case.stack}"
    if key not in known:
        if traces.kept(case) is None:
            warm_up(case)
        captured = traces.get(case)
        known[key] = captured.error if captured.trace is None else SIMULATORS["simulator"](case, captured.trace)
    return known[key]


def _figure(case: Case, prediction: Prediction) -> int:
    if case.measure is Measure.ALLOCATED:
        return prediction.allocated
    return prediction.reserved + (prediction.context if case.measure is Measure.DEVICE_TOTAL else 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groundtruth", type=Path)
    parser.add_argument("--cache", type=Path, default=default_folder(), metavar="FOLDER")
    parser.add_argument("--compiled", action="store_true", help="the runs that differ by torch.compile alone")
    options = parser.parse_args()
    judge = run_compiled if options.compiled else run
    outcome = judge(options.groundtruth, options.cache, lambda line: print(line, file=sys.stderr, flush=True))
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
