"""`oomcast estimate JOB`: will it fit, how much will it hold, and why."""

from __future__ import annotations

import argparse
import contextlib
import json
from typing import Any

from rich.console import Console

from ..errors import BadInput
from ..estimate import ESTIMATOR_NAMES, Estimate, estimate
from ..report import draw_estimate, estimate_as_json, estimate_html, render_estimate, snapshot_as_pickle
from ._files import check_figure, check_targets, write_figure, write_target
from ._job_options import add_job_options, job_options
from ._terminal import terminal

__all__ = ["add_to"]

DOES_NOT_FIT = 3
_EXAMPLES = """examples:
  oomcast estimate zoo:resnet50 --batch-size 64 --device rtx-3090
  oomcast estimate job.py --batch-size 32 --device a100-40gb --precision amp-bf16 --json
  oomcast estimate zoo:llama-2-7b --batch-size 1 --seq-len 2048 --precision bf16 --device h100-80gb --html step.html
  oomcast estimate hf:gpt2 --batch-size 8 --seq-len 1024 --device rtx-4090 --optimizer adamw

exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "estimate",
        help="how much a training job will hold, and whether it fits",
        description="Estimate the GPU memory of a training job, without a GPU.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser)
    parser.add_argument("--estimator", default="simulator", metavar="NAME", help=f"{', '.join(ESTIMATOR_NAMES)}")
    parser.add_argument("--campaign", metavar="FILE", help="of oomcast campaign fit, for the estimator tbem")
    parser.add_argument("--equation", metavar="FILE", help="of oomcast equation fit, for the estimator equation")
    parser.add_argument("--calibration", metavar="FILE", help="use this artifact of oomcast calibrate --output")
    parser.add_argument(
        "--no-calibration", action="store_true", help="use the catalogue, whatever oomcast calibrate has learnt"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="also write a page with the timeline, the modules and the reasons"
    )
    parser.add_argument(
        "--figure",
        "--svg",
        metavar="FILE",
        help="also draw the timeline and the breakdown, for papers: a .svg or .png file",
    )
    parser.add_argument(
        "--snapshot", metavar="FILE", help="also write the prediction as torch's memory snapshot, for memory_viz"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.calibration and options.no_calibration:
        raise BadInput("--calibration and --no-calibration exclude each other; give one.")
    targets = [file for file in (options.html, options.figure, options.snapshot) if file]
    check_targets(targets)
    check_figure(options.figure)
    errors = Console(stderr=True)
    progress = errors.status(f"Running {options.job} on a virtual {options.device} …")
    with progress if errors.is_terminal else contextlib.nullcontext():
        answer = estimate(
            options.job,
            estimator=options.estimator,
            calibration=options.calibration,
            use_calibration=not options.no_calibration,
            campaign=options.campaign,
            equation=options.equation,
            keep_history=bool(targets),
            **job_options(options),
        )
    _write_reports(answer, options)
    if options.json:
        print(json.dumps(estimate_as_json(answer), indent=2))
    else:
        terminal().print(render_estimate(answer))
    return 0 if answer.fits else DOES_NOT_FIT


def _write_reports(answer: Estimate, options: argparse.Namespace) -> None:
    if options.html:
        write_target(options.html, estimate_html(answer).encode())
    if options.figure:
        write_figure(options.figure, draw_estimate(answer))
    if options.snapshot:
        if answer.history is None:
            raise BadInput(f"the estimator {options.estimator} follows no allocations, so it has no snapshot to write.")
        write_target(options.snapshot, snapshot_as_pickle(answer.history))
