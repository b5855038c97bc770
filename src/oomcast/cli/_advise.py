"""`oomcast advise JOB`: what to change so that it fits, each change captured."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..advise import what_to_change
from ..errors import BadInput
from ..report._advise_json import advice_as_json
from ..report._advise_text import render_advice
from ._job_options import add_job_options, job_options
from ._progress import working
from ._terminal import terminal

__all__ = ["add_to"]

NOT_REACHED = 3
_EXAMPLES = """examples:
  oomcast advise job.py --batch-size 64 --device rtx-3060
  oomcast advise hf:gpt2 --batch-size 8 --seq-len 1024 --device t4 --goal 12GiB
  oomcast advise zoo:resnet50 --batch-size 256 --device rtx-3090 --only amp-fp16,channels-last,accumulate-2

exit codes: 0 the goal is reached, as it is or by changes; 3 it is not; 2 bad input; 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "advise",
        help="what to change so that a job fits",
        description="Capture a job with each remedy against too much memory, and with the combinations that it takes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser)
    parser.add_argument("--goal", default="fits", metavar="fits|BYTES", help="fits (default), or a size like 20GiB")
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--only", metavar="NAMES", help="consider only these remedies, separated by commas")
    parser.add_argument("--calibration", metavar="FILE", help="use this artifact of oomcast calibrate --output")
    parser.add_argument("--no-calibration", action="store_true", help="use the catalogue only")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.calibration and options.no_calibration:
        raise BadInput("--calibration and --no-calibration exclude each other; give one.")
    only = None if options.only is None else [name.strip() for name in options.only.split(",") if name.strip()]
    with working(f"Running {options.job} with each remedy on a virtual {options.device} …"):
        advice = what_to_change(
            options.job,
            goal=options.goal,
            confidence=options.confidence,
            only=only,
            calibration=options.calibration,
            use_calibration=not options.no_calibration,
            **job_options(options),
        )
    if options.json:
        print(json.dumps(advice_as_json(advice), indent=2))
    else:
        terminal().print(render_advice(advice))
    return 0 if advice.reachable else NOT_REACHED
