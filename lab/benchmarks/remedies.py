"""`python -m lab bench remedies`: the change between published runs that differ by one setting, as predicted."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from ..accuracy import Case, Measure, default_folder
from ..accuracy.fine_tuning import read_fine_tuning
from ..accuracy.simulators import SIMULATORS, Prediction
from ..accuracy.traces import TraceCache, trace_key
from ..accuracy.warm import warm_up
from .report import Bar, Outcome, as_mib, print_outcome

__all__ = ["Pair", "pairs", "run"]

SETS = ("litgpt", "rasbt_memory", "torchtune")
SHOWN = ("hf_docs_bert_large",)
WITHIN = 0.10
_SETTINGS = {
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
    cases = [case for case in read_fine_tuning(name, path).cases if case.measured is not None]
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


def _told(case: Case) -> dict[str, Any]:
    """All that decides the case, by field."""
    job = case.workload.job.target
    told = {field.name: getattr(job, field.name) for field in fields(job)} if is_dataclass(job) else {"job": repr(job)}
    options = {key: value for key, value in case.workload.as_dict().items() if key != "job"}
    return {**told, **options, "gpu": case.gpu, "stack": case.stack, "measure": case.measure}


def _short(value: object) -> str:
    return type(value).__name__ if is_dataclass(value) else str(value)


def run(groundtruth: Path, cache: Path, show: Callable[[str], None]) -> Outcome:
    traces = TraceCache(cache)
    predictions: dict[str, Prediction | str] = {}
    rows, judged = [], []
    for name in (*SETS, *SHOWN):
        for pair in pairs(name, groundtruth / f"{name}.csv"):
            known = [_predicted(case, traces, predictions) for case in (pair.before, pair.after)]
            one, other = known
            if isinstance(one, str) or isinstance(other, str):
                show(f"{pair.before.name}: {one if isinstance(one, str) else other}")
                continue
            change = _figure(pair.after, other) - _figure(pair.before, one)
            error = (change - pair.measured) / abs(pair.measured)
            if name in SETS:
                judged.append(abs(error))
            rows.append(
                (
                    name,
                    f"{pair.before.row} | {pair.after.row.split(' ')[0]}",
                    f"{pair.setting}: {pair.words}",
                    as_mib(pair.measured),
                    as_mib(change),
                    f"{error:+.1%}",
                )
            )
            show(" ".join(rows[-1]))
    return _outcome(rows, judged)


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


def _outcome(rows: Sequence[tuple[str, ...]], judged: list[float]) -> Outcome:
    within = sum(error <= WITHIN for error in judged)
    return Outcome(
        "Published runs that differ by one setting: measured change and predicted one",
        ("set", "rows", "setting", "measured MiB", "predicted MiB", "error"),
        rows,
        [Bar(f"within {WITHIN:.0%} of the measured change", f"{within} of {len(judged)}", 0 < len(judged) == within)],
        (
            "litgpt, rasbt and torchtune are judged; of torchtune only one row can be rebuilt, so it has no pair; "
            "the rows of hf_docs_bert_large are nvidia-smi readings and are shown beside them",
        ),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groundtruth", type=Path)
    parser.add_argument("--cache", type=Path, default=default_folder(), metavar="FOLDER")
    options = parser.parse_args()
    outcome = run(options.groundtruth, options.cache, lambda line: print(line, file=sys.stderr, flush=True))
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
