"""The largest batch of timm's ladder on an RTX 3090, found and recorded: `python -m lab bench ladder GROUNDTRUTH`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from oomcast.advise.largest import search_largest
from oomcast.advise.parameters import find_parameter
from oomcast.errors import OomcastError
from oomcast.provenance import source_digest

from ..accuracy import Case, default_folder, sample
from ..accuracy.timm_fits import read_timm_fits
from ..accuracy.warm import warm_up
from .largest_batch import SEARCHING
from .report import Bar, Outcome, print_outcome

__all__ = ["LADDER", "Row", "run"]

LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_FILE = "timm_rtx3090_fits.csv"
_RUNS = 0.02
"""The record says whether it ran, not how sure that was: with so little confidence only the simulated run decides."""
_CAPTURES = 3
_STEPS = 2
SAME, NEAR = 0.80, 0.97


@dataclass(frozen=True)
class Row:
    model: str
    recorded: int
    found: int | None
    captures: int
    error: str = ""

    @property
    def off(self) -> int | None:
        """Steps of the ladder above the record (below it, if negative); one below the ladder where nothing fits."""
        if self.error:
            return None
        return (LADDER.index(self.found) if self.found is not None else -1) - LADDER.index(self.recorded)


def recorded_batches(path: Path) -> list[tuple[Case, int]]:
    """For each model and layout the largest batch that ran."""
    best: dict[tuple[str, str], Case] = {}
    for case in read_timm_fits(path).cases:
        _, model, _, layout = case.row.split()
        known = best.get((model, layout))
        if case.ran and (known is None or case.workload.batch_size > known.workload.batch_size):
            best[model, layout] = case
    return [(case, case.workload.batch_size) for case in best.values()]


def run(path: Path, models: int, seed: int, cache: Path, show: Callable[[Row], None]) -> Outcome:
    known = recorded_batches(path)
    recorded = {case.row: batch_size for case, batch_size in known}
    digest = source_digest(*SEARCHING)
    cache.mkdir(parents=True, exist_ok=True)
    rows = []
    for case in sample([case for case, _ in known], models, seed):
        kept = cache / f"{case.row.split(' ', 1)[1]} {digest}.json"
        if kept.is_file():
            row = Row(**json.loads(kept.read_text(encoding="utf-8")))
        else:
            row = _row(case, recorded[case.row])
            kept.write_text(json.dumps(asdict(row)), encoding="utf-8")
        show(row)
        rows.append(row)
    return _outcome(rows, len(known))


def _row(case: Case, recorded: int) -> Row:
    warm_up(case)
    _, model, _, layout = case.row.split()
    spec = case.spec.with_workload(dataclasses.replace(case.workload, steps=_STEPS))
    # The search may begin anywhere; next to the answer it needs fewer captures. What is found does not depend on it.
    parameter = dataclasses.replace(find_parameter("batch-size", spec.workload), start=recorded)
    try:
        found = search_largest(parameter, LADDER, spec, _RUNS, most_captures=_CAPTURES, curve=False)
    except OomcastError as error:
        return Row(f"{model} {layout}", recorded, None, 0, str(error))
    return Row(f"{model} {layout}", recorded, found.value, found.captures)


def _outcome(rows: list[Row], of: int) -> Outcome:
    judged = [row for row in rows if row.off is not None]
    inside = [row for row in judged if row.recorded < LADDER[-1]]
    count = max(len(judged), 1)
    same = sum(row.off == 0 for row in judged) / count
    near = sum(abs(row.off or 0) <= 1 for row in judged) / count
    inner = sum(row.off == 0 for row in inside) / max(len(inside), 1)
    captures = sum(row.captures for row in judged) / count
    return Outcome(
        "The largest batch of timm's ladder on an RTX 3090, fp16 autocast",
        ("model", "recorded", "found", "steps off", "captures"),
        [
            (
                row.model,
                str(row.recorded),
                "–" if row.error else str(row.found),
                row.error[:40] if row.error else f"{row.off:+d}" if row.off else "0",
                str(row.captures),
            )
            for row in rows
        ],
        [
            Bar(f"the recorded batch ({SAME:.0%})", f"{same:.1%} of {len(judged)}", same >= SAME and len(judged) >= 60),
            Bar(f"within one step ({NEAR:.0%})", f"{near:.1%} of {len(judged)}", near >= NEAR and len(judged) >= 60),
            Bar("the recorded batch, where the ladder's top did not run", f"{inner:.1%} of {len(inside)}", None),
        ],
        (f"a sample of {len(rows)} of {of} models and layouts, the families in turn; {captures:.1f} captures a model",),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groundtruth", type=Path)
    parser.add_argument("--models", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=default_folder() / "ladder", metavar="FOLDER")
    options = parser.parse_args()

    def show(row: Row) -> None:
        print(f"{row.model}: recorded {row.recorded}, found {row.found} {row.error}", file=sys.stderr, flush=True)

    outcome = run(options.groundtruth / _FILE, options.models, options.seed, options.cache, show)
    print_outcome(outcome)
    return 0 if outcome.holds else 1


if __name__ == "__main__":
    sys.exit(main())
