"""`python -m lab bench equations`: memory as an equation, from real runs of a 3D U-Net; for docs/explanation.

The runs are in lab/benchmarks/campaigns/equations/*.csv, so that every fit, table and picture is made again without a
measurement, in two minutes. --published-splits N adds the published search, two minutes more for each; --kept FOLDER
keeps what is finished, so that it goes on there. With --measure DIR the runs are measured anew there (what was
interrupted goes on) and written over; Keras runs where --python keras=PATH says. --capture keeps what was measured and
makes the figures of the Timelines anew. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oomcast.methods.equations import MemoryEquation, fit_equation_to
from oomcast.methods.equations.analytic import ANALYTIC
from oomcast.methods.equations.baselines import BASELINES
from oomcast.methods.equations.comparison import HALF, PUBLISHED, SYMBOLIC
from oomcast.units import parse_bytes

from .equation_carry import FAMILIES, Carried, carry
from .equation_figures import draw
from .equation_runs import CAMPAIGNS, GIB, Runs, Study, capture_again, measure, read_runs, run_study
from .report import Bar, Outcome, console, print_outcome

MOST_ERROR, MOST_ERROR_OF_HALF, MOST_PUBLISHED_ERROR, LEAST_SPEED_RATIO = 0.015, 0.03, 0.0415, 10
FRAMEWORKS = {"unet3d": "PyTorch", "unet3d_keras": "Keras"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench equations", description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="DIR", help="measure what DIR does not hold yet, and keep it")
    parser.add_argument("--campaigns", nargs="+", choices=CAMPAIGNS, default=list(CAMPAIGNS), help="those to measure")
    parser.add_argument("--most-memory", type=parse_bytes, metavar="SIZE", help="leave out runs that would hold more")
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=PATH")
    parser.add_argument("--capture", action="store_true", help="make the figures of the Timelines anew")
    parser.add_argument("--figures", type=Path, metavar="FOLDER", help="draw the page's figures there")
    parser.add_argument("--published-splits", type=int, default=0, metavar="N", help="splits for the slow search")
    parser.add_argument("--kept", type=Path, metavar="FOLDER", help="keep what each method says of each split there")
    given = parser.parse_args()
    if given.kept is not None:
        given.kept.mkdir(parents=True, exist_ok=True)
    if given.measure is not None:
        given.measure.mkdir(parents=True, exist_ok=True)
        interpreters = dict(text.split("=", 1) for text in given.python)
        say = lambda words: console.print(words, markup=False)  # noqa: E731
        measure(given.measure, interpreters, say, given.campaigns, given.most_memory)
    if given.capture:
        for name in FAMILIES.values():
            with progress_bar(name) as tell:
                capture_again(name, tell)
    studies: dict[str, Study] = {}
    equations: dict[str, MemoryEquation] = {}
    for name, framework in FRAMEWORKS.items():
        runs = read_runs(name)
        with progress_bar(framework) as tell:
            kept = None if given.kept is None else given.kept / f"{name}.splits.json"
            studies[name] = run_study(runs, kept, tell, given.published_splits)
        equations[name] = equation_of(runs)
    with progress_bar("carried to other networks") as tell:
        carried = carry(tell)
    if given.figures is not None:
        draw(given.figures, {FRAMEWORKS[name]: (studies[name], equations[name]) for name in FRAMEWORKS})
    outcome = _outcome(studies)
    print_outcome(outcome)
    for table in (_samples(studies, equations), _methods(outcome), _published(studies), _carried(carried)):
        console.print(_markdown(table) + "\n", markup=False, soft_wrap=True)
    return 0 if outcome.holds else 1


def equation_of(runs: Runs) -> MemoryEquation:
    """The equation of all runs of a 3D U-Net."""
    return fit_equation_to(runs.rows, runs.origin, stores=[], variables=("edge", "batch_size"))


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[str, int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tell(words: str, done: int, total: int) -> None:
            bar.update(task, description=f"{what}: {words}", completed=done, total=total)

        yield tell


def _outcome(studies: dict[str, Study]) -> Outcome:
    rows, bars = [], []
    for method in next(iter(studies.values())).splits:
        rows.append((method, *(_error(study, method) for study in studies.values())))
    for name, study in studies.items():
        framework, median = FRAMEWORKS[name], study.median
        best = min((*BASELINES, *ANALYTIC), key=median)
        bars += [
            Bar(f"{framework}: median test error", _percent(median(SYMBOLIC)), median(SYMBOLIC) <= MOST_ERROR),
            Bar(f"{framework}: below {best}", _percent(median(best)), median(SYMBOLIC) < median(best)),
        ]
        if HALF in study.splits:
            bars.append(
                Bar(f"{framework}: half of the runs", _percent(median(HALF)), median(HALF) <= MOST_ERROR_OF_HALF)
            )
        if PUBLISHED in study.splits:
            found, ratio = median(PUBLISHED), study.speed_ratio()
            bars.append(Bar(f"{framework}: published", _percent(found), found <= MOST_PUBLISHED_ERROR))
            bars.append(Bar(f"{framework}: times as fast as it", f"{ratio:.0f}", ratio >= LEAST_SPEED_RATIO))
    columns = ("method", *(FRAMEWORKS[name] for name in studies))
    return Outcome("Median test error over random 70/30 splits", columns, rows, bars)


def _error(study: Study, method: str) -> str:
    """A dash where the runs are too few for the method."""
    if method not in study.splits:
        return "–"
    return f"{_percent(study.median(method))} (worst {_percent(study.worst(method))})"


def _samples(studies: dict[str, Study], equations: dict[str, MemoryEquation]) -> list[Sequence[str]]:
    table: list[Sequence[str]] = [("framework", "runs", "edges", "batch sizes", "peaks", "memory in bytes")]
    for name, study in studies.items():
        fitted = equations[name]
        version = f"{FRAMEWORKS[name]} {fitted.environment['version']}"
        table.append((version, *_range(study.runs), f"{fitted.equation.text()}"))
    return table


def _range(runs: Runs) -> tuple[str, str, str, str]:
    edges, batches = (sorted({int(row.parameters[name]) for row in runs.rows}) for name in ("edge", "batch_size"))
    peaks = [row.measured / GIB for row in runs.rows]
    return (
        str(len(runs.rows)),
        ", ".join(map(str, edges)),
        ", ".join(map(str, batches)),
        f"{min(peaks):.2f} to {max(peaks):.1f} GiB",
    )


def _methods(outcome: Outcome) -> list[Sequence[str]]:
    return [outcome.columns, *outcome.rows]


def _published(studies: dict[str, Study]) -> list[Sequence[str]]:
    table: list[Sequence[str]] = [("framework", "split", "search", "test error", "seconds", "equation, bytes")]
    for name, study in studies.items():
        for number, published in enumerate(study.splits.get(PUBLISHED, [])):
            for search, split in ((PUBLISHED, published), (SYMBOLIC, study.splits[SYMBOLIC][number])):
                seconds = f"{split.seconds:.1f}"
                row = (FRAMEWORKS[name], str(number), search, _percent(split.error), seconds, split.equation)
                table.append(row)
    return table


def _carried(carried: Sequence[Carried]) -> list[Sequence[str]]:
    table: list[Sequence[str]] = [
        ("learnt from", *(f"error on {family}" for family in FAMILIES), "of raw parameters", "equation, bytes")
    ]
    for one in carried:
        errors = [
            f"{_percent(one.errors[family])} ({_percent(one.constant_errors[family])})"
            + (" *" if family in one.learnt_from else "")
            for family in FAMILIES
        ]
        raw = "–" if one.by_parameters is None else _percent(one.by_parameters)
        table.append((" and ".join(one.learnt_from), *errors, raw, one.equation))
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _markdown(lines: Sequence[Sequence[str]]) -> str:
    head, *rest = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *rest))


if __name__ == "__main__":
    sys.exit(main())
