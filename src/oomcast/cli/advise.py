"""`oomcast advise JOB`: what to change so that it fits, each change captured."""

from __future__ import annotations

import argparse
from typing import Any

from .job_options import add_job_options, given_options

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
        usage="oomcast advise JOB --batch-size N --device GPU [OPTIONS]",
        help="what to change so that a job fits",
        description="Capture a job with each remedy against too much memory, and with the combinations that it takes.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser)
    parser.add_argument("--goal", default="fits", metavar="fits|BYTES", help="fits (default), or a size like 20GiB")
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--only", metavar="NAMES", help="consider only these remedies, separated by commas")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..advise import what_to_change
    from ..report.advice import advice_as_json, render_advice
    from .terminal import print_json, terminal, working

    only = None if options.only is None else [name.strip() for name in options.only.split(",") if name.strip()]
    with working(f"Running {options.job} with each remedy on a virtual {options.device} …"):
        advice = what_to_change(
            options.job,
            goal=options.goal,
            confidence=options.confidence,
            only=only,
            **given_options(options),
        )
    if options.json:
        print_json(advice_as_json(advice))
    else:
        terminal().print(render_advice(advice))
    return 0 if advice.reachable else NOT_REACHED
