"""`python -m lab train DIR`: the learned estimators, trained again from files of measured runs, or judged on them."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput

from ..progress import progress_bars

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "train",
        help="train the learned estimators again from GPUMemNet's files",
        description="Train every learned estimator; write the artifact, its scores and pictures.",
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder with the files of measurements")
    parser.add_argument("--output", type=Path, metavar="DIR", help="where artifacts and figures go")
    parser.add_argument(
        "--judge",
        type=Path,
        metavar="FILE",
        help="train nothing: judge the classifiers of this file, of oomcast dataset train, on the measured networks",
    )
    parser.add_argument(
        "--rows", type=int, default=250, metavar="N", help="captures of each file, families in turn (default: 250)"
    )
    parser.add_argument("--all-rows", action="store_true", help="capture every row")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where traces are kept")
    parser.add_argument("--accept-stale", action="store_true", help="use traces that older code captured")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of splits and weights (default: 0)")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="captures at a time (default: one for each core)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name, value in (("rows", options.rows), ("processes", options.processes)):
        if value < 1:
            raise BadInput(f"--{name} must be at least 1, not {value}.")
    from oomcast.methods.gpumemnet.training.train import render_scores

    from .training import judge_artifact, render, train

    if options.judge is not None:
        scores = judge_artifact(options.judge, options.folder)
        plain = [one.as_dict() for one in scores]
        print(json.dumps(plain, indent=2) if options.json else "\n".join(render_scores(scores)))
        return 0
    if options.output is None:
        raise BadInput("--output DIR is needed: where do artifacts and figures go?")
    with progress_bars() as tell:
        report = train(
            options.folder,
            options.output,
            rows=None if options.all_rows else options.rows,
            cache=options.cache,
            seed=options.seed,
            processes=options.processes,
            accept_stale=options.accept_stale,
            on_progress=tell,
        )
    print(json.dumps(report.as_dict(), indent=2) if options.json else render(report))
    return 0
