"""`python -m lab bench equations`: memory as an equation, from real runs of a 3D U-Net; for docs/equations.md.

The runs of lab/benchmarks/campaigns/equations, and for the last table those of `lab.benchmarks.tbem`, are measured
where the store does not hold them yet; results of every split are kept beside them. So a run that was interrupted goes
on. Keras runs where --python keras=PATH says. It prints the page's tables and draws its figures. Exit code 1 if a bar
is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oomcast.methods.equations import MemoryEquation, fit_equation, write_equation
from oomcast.methods.equations.analytic import ANALYTIC
from oomcast.methods.equations.baselines import BASELINES
from oomcast.methods.equations.comparison import HALF, PUBLISHED, SYMBOLIC
from oomcast.methods.measure import Store

from . import tbem
from .equation_carry import FAMILIES, Carried, carry
from .equation_figures import draw
from .equation_runs import CAMPAIGNS, GIB, Sample, Study, measure, read_samples, run_study
from .report import Bar, Outcome, console, print_outcome

MOST_ERROR, MOST_ERROR_OF_HALF, MOST_PUBLISHED_ERROR, LEAST_SPEED_RATIO = 0.015, 0.03, 0.0415, 10
FRAMEWORKS = {"unet3d": "PyTorch", "unet3d_keras": "Keras"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench equations", description=__doc__)
    parser.add_argument("--store", type=Path, default=Path("equation-store"), help="folder of the runs and results")
    parser.add_argument("--python", action="append", default=[], metavar="FRAMEWORK=PATH")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="of the figures (default: the store)")
    parser.add_argument("--fit-only", action="store_true", help="run nothing; learn from what the store holds")
    parser.add_argument("--published-splits", type=int, default=3, metavar="N", help="splits for the slow search")
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    interpreters = dict(text.split("=", 1) for text in given.python)
    if not given.fit_only:
        measure(given.store, interpreters, lambda words: console.print(words, markup=False))
        for name in ("vgg", "unet"):
            tbem.measure(tbem.CAMPAIGNS / f"{name}.toml", given.store, interpreters, steady=True)
    studies: dict[str, Study] = {}
    equations: dict[str, MemoryEquation] = {}
    for name in CAMPAIGNS:
        with progress_bar(FRAMEWORKS[name]) as tell:
            samples = read_samples(given.store / f"{name}.db")
            kept = given.store / f"{name}.splits.json"
            studies[name] = run_study(samples, kept, tell, given.published_splits)
        with Store.open(given.store / f"{name}.db") as store:
            equations[name] = fit_equation([store])
        write_equation(equations[name], given.store / f"{name}.equation.json")
    with progress_bar("carried to other networks") as tell:
        carried = carry(given.store, tell)
    draw(given.output or given.store, {FRAMEWORKS[name]: (studies[name], equations[name]) for name in CAMPAIGNS})
    outcome = _outcome(studies)
    print_outcome(outcome)
    for table in (_samples(studies, equations), _methods(outcome), _published(studies), _carried(carried)):
        console.print(_markdown(table) + "\n", markup=False, soft_wrap=True)
    return 0 if outcome.holds else 1


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
        figures = [f"{_percent(s.median(method))} (worst {_percent(s.worst(method))})" for s in studies.values()]
        rows.append((method, *figures))
    for name, study in studies.items():
        framework, median = FRAMEWORKS[name], study.median
        best = min((*BASELINES, *ANALYTIC), key=median)
        ratio = study.speed_ratio()
        bars += [
            Bar(f"{framework}: median test error", _percent(median(SYMBOLIC)), median(SYMBOLIC) <= MOST_ERROR),
            Bar(f"{framework}: below {best}", _percent(median(best)), median(SYMBOLIC) < median(best)),
            Bar(f"{framework}: half of the runs", _percent(median(HALF)), median(HALF) <= MOST_ERROR_OF_HALF),
            Bar(f"{framework}: published", _percent(median(PUBLISHED)), median(PUBLISHED) <= MOST_PUBLISHED_ERROR),
            Bar(f"{framework}: times as fast as it", f"{ratio:.0f}", ratio >= LEAST_SPEED_RATIO),
        ]
    columns = ("method", *(FRAMEWORKS[name] for name in studies))
    return Outcome("Median test error over random 70/30 splits", columns, rows, bars)


def _samples(studies: dict[str, Study], equations: dict[str, MemoryEquation]) -> list[Sequence[str]]:
    table: list[Sequence[str]] = [("framework", "runs", "edges", "batch sizes", "peaks", "memory in bytes")]
    for name, study in studies.items():
        fitted = equations[name]
        version = f"{FRAMEWORKS[name]} {fitted.environment['version']}"
        table.append((version, *_range(study.samples), f"{fitted.equation.text()}"))
    return table


def _range(samples: Sequence[Sample]) -> tuple[str, str, str, str]:
    edges, batches = sorted({one.edge for one in samples}), sorted({one.batch_size for one in samples})
    peaks = [one.peak / GIB for one in samples]
    return (
        str(len(samples)),
        ", ".join(map(str, edges)),
        ", ".join(map(str, batches)),
        f"{min(peaks):.2f} to {max(peaks):.1f} GiB",
    )


def _methods(outcome: Outcome) -> list[Sequence[str]]:
    return [outcome.columns, *outcome.rows]


def _published(studies: dict[str, Study]) -> list[Sequence[str]]:
    table: list[Sequence[str]] = [("framework", "split", "search", "test error", "seconds", "equation, bytes")]
    for name, study in studies.items():
        for number, published in enumerate(study.splits[PUBLISHED]):
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
