"""`python -m lab accuracy [DIR]`: every estimator against measured runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oomcast.cli.files import check_figure, check_targets, write_figure
from oomcast.cli.terminal import terminal
from oomcast.errors import BadInput
from oomcast.estimation import load_interval

from ..progress import progress_bars
from .calibrate_interval import fit_interval, write_interval
from .cases import Case
from .figures import read_figures
from .judging import CONSTANT, judged_pairs
from .plotting import plot
from .rendering import as_json, render
from .reporting import make_report
from .running import ESTIMATORS, Result, check_estimators, run_cases, sample
from .sets import DATA_SETS, read_sets
from .summary import write_summary
from .traces import default_folder

__all__ = ["add_to"]

_EXAMPLES = """examples:
  python -m lab accuracy --plot accuracy.svg
  python -m lab accuracy ../shared/groundtruth --rows 60
  python -m lab accuracy DIR --data real_models gpumemnet_cnn --estimators simulator mem-tracker horus --json"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "accuracy",
        help="estimates against measured runs",
        description="Rebuild measured runs, estimate each, and compare. Stopped, it goes on where it was.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        type=Path,
        nargs="?",
        help="the folder with the files of measurements (default: the cited figures that come with the laboratory)",
    )
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="NAME", help="files of DIR without .csv: " + ", ".join(DATA_SETS)
    )
    parser.add_argument(
        "--estimators", nargs="+", default=["simulator"], metavar="NAME", help="all, or " + ", ".join(ESTIMATORS)
    )
    parser.add_argument("--rows", type=int, metavar="N", help="at most N rows of each data set, all families in turn")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="which rows --rows takes (default: 0)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="processes to run (default: 1)")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where traces and answers are kept")
    parser.add_argument("--accept-stale", action="store_true", help="use traces that older code captured")
    parser.add_argument("--worst", type=int, default=20, metavar="N", help="worst rows to show (default: 20)")
    parser.add_argument("--families", action="store_true", help="show the first estimator on every model family")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the first estimator against the truth: .svg or .png"
    )
    parser.add_argument("--write-interval", type=Path, metavar="FILE", help="fit the interval on these rows")
    parser.add_argument(
        "--write-summary",
        type=Path,
        metavar="FILE",
        help="renew these data sets in the table of `oomcast accuracy` (src/oomcast/estimation/accuracy.json)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name, value in (("rows", options.rows), ("processes", options.processes)):
        if value is not None and value < 1:
            raise BadInput(f"--{name} must be at least 1, not {value}.")
    check_figure(options.plot)
    check_targets(str(file) for file in (options.write_interval, options.write_summary) if file is not None)
    named = ESTIMATORS if options.estimators == ["all"] else options.estimators
    estimators = check_estimators(named)
    sets = read_figures(options.data) if options.folder is None else read_sets(options.folder, options.data)
    chosen = {data_set.name: sample(data_set.cases, options.rows, options.seed) for data_set in sets if data_set.cases}
    results = _run(chosen, estimators, options)
    report = make_report(sets, results, estimators, worst_rows=options.worst, families=options.families)
    if options.write_interval is not None:
        _write_interval(results, estimators[0], options.write_interval)
    if options.write_summary is not None:
        write_summary(results, estimators[0], options.write_summary)
    if options.plot is not None:
        _write_plot(results, estimators[0], options.plot)
    if options.json:
        print(json.dumps(as_json(report), indent=2))
    else:
        terminal().print(render(report))
    return _unanswered(results)


def _unanswered(results: Mapping[str, Sequence[Result]]) -> int:
    """1 where every case of a data set failed: its scores would be empty without a word."""
    silent = [name for name, found in results.items() if found and all(result.error for result in found)]
    for name in silent:
        reason = results[name][0].error
        print(f"no case of {name} has an answer ({len(results[name])} tried); the first: {reason}", file=sys.stderr)
    return 1 if silent else 0


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
    results: dict[str, list[Result]] = {}
    with progress_bars() as tell:
        for name, cases in chosen.items():
            tell(name, 0, len(cases))
            done = results[name] = []
            for result in run_cases(
                cases, estimators, folder, processes=options.processes, accept_stale=options.accept_stale
            ):
                done.append(result)
                tell(name, len(done), len(cases))
    return results
