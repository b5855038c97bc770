"""`oomcast bench accuracy [DIR]`: every estimator against measured runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..accuracy import (
    CONSTANT,
    DATA_SETS,
    ESTIMATORS,
    Case,
    Result,
    as_json,
    check_estimators,
    default_folder,
    fit_interval,
    judged_pairs,
    make_report,
    plot,
    read_figures,
    read_sets,
    render,
    run_cases,
    sample,
    write_interval,
)
from ..errors import BadInput
from ..estimate import load_interval
from ._files import check_figure, write_figure
from ._terminal import terminal

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast bench accuracy --plot accuracy.svg
  oomcast bench accuracy ../shared/groundtruth --rows 60
  oomcast bench accuracy DIR --data real_models gpumemnet_cnn --estimators simulator mem-tracker horus --json"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench", help="compare estimators with measured runs", description="Compare estimators with measured runs."
    )
    kinds = parser.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
    accuracy: argparse.ArgumentParser = kinds.add_parser(
        "accuracy",
        help="estimates against measured memory",
        description="Rebuild measured runs, estimate each, and compare. Stopped, it goes on where it was.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    accuracy.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        nargs="?",
        help="the folder with the files of measurements (default: the figures that come with oomcast)",
    )
    accuracy.add_argument("--data", nargs="+", default=[], metavar="NAME", help=", ".join(DATA_SETS))
    accuracy.add_argument(
        "--estimators", nargs="+", default=["simulator"], metavar="NAME", help="all, or " + ", ".join(ESTIMATORS)
    )
    accuracy.add_argument("--rows", type=int, metavar="N", help="at most N rows of each data set, all families in turn")
    accuracy.add_argument("--processes", type=int, default=1, metavar="N", help="processes to run (default: 1)")
    accuracy.add_argument("--cache", type=Path, metavar="FOLDER", help="where traces and answers are kept")
    accuracy.add_argument("--accept-stale", action="store_true", help="use traces that older code captured")
    accuracy.add_argument("--worst", type=int, default=20, metavar="N", help="worst rows to show (default: 20)")
    accuracy.add_argument("--families", action="store_true", help="show the first estimator on every model family")
    accuracy.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the first estimator against the truth: .svg or .png"
    )
    accuracy.add_argument("--write-interval", type=Path, metavar="FILE", help="fit the interval on these rows")
    accuracy.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    accuracy.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name, value in (("rows", options.rows), ("processes", options.processes)):
        if value is not None and value < 1:
            raise BadInput(f"--{name} must be at least 1, not {value}.")
    check_figure(options.plot)
    named = ESTIMATORS if options.estimators == ["all"] else options.estimators
    estimators = check_estimators(named)
    sets = read_figures(options.data) if options.folder is None else read_sets(options.folder, options.data)
    chosen = {one.name: sample(one.cases, options.rows) for one in sets if one.cases}
    results = _run(chosen, estimators, options)
    report = make_report(sets, results, estimators, worst_rows=options.worst, families=options.families)
    if options.write_interval is not None:
        _write_interval(results, estimators[0], options.write_interval)
    if options.plot is not None:
        _write_plot(results, estimators[0], options.plot)
    if options.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        terminal().print(render(report))
    return 0


def _write_interval(results: Mapping[str, Sequence[Result]], estimator: str, path: Path) -> None:
    """For contexts from the catalogue, and for one constant per campaign instead of a calibration."""
    everything = [result for found in results.values() for result in found]
    fitted = fit_interval(judged_pairs(everything, estimator), judged_pairs(everything, estimator + CONSTANT))
    write_interval(fitted, path)


def _write_plot(results: Mapping[str, Sequence[Result]], estimator: str, path: Path) -> None:
    interval = load_interval()
    judged = {name: [one for _, one in judged_pairs(found, estimator)] for name, found in results.items()}
    write_figure(path, plot(estimator, judged, (interval.lower, interval.upper)))


def _run(
    chosen: dict[str, tuple[Case, ...]], estimators: Sequence[str], options: argparse.Namespace
) -> dict[str, list[Result]]:
    folder = options.cache or default_folder()
    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, disable=not errors.is_terminal, transient=True) as progress:
        results = {}
        for name, cases in chosen.items():
            task = progress.add_task(name, total=len(cases))
            results[name] = run_cases(
                cases,
                estimators,
                folder,
                processes=options.processes,
                accept_stale=options.accept_stale,
                on_result=lambda result, task=task: progress.advance(task),  # type: ignore[misc]
            )
    return results
