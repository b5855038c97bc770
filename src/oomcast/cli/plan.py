"""`oomcast plan JOB --device 8xa100-80gb`: the layouts over several GPUs that fit, the cheapest first."""

from __future__ import annotations

import argparse
from typing import Any

from .job_options import add_job_options, given_options

__all__ = ["add_to"]

DOES_NOT_FIT = 3
_DECIDED = ("parallel", "rank", "accumulation", "checkpointing", "blocks")
_EXAMPLES = """examples:
  oomcast plan zoo:llama-2-7b --batch-size 1 --seq-len 2048 --precision amp-bf16 --device 8xa100-80gb
  oomcast plan job.py --batch-size 2 --device 2x8xh100-80gb --captures 4 --json

exit codes: 0 a layout fits, 3 none of those that were tried does, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "plan",
        usage="oomcast plan JOB --batch-size N --device 8xGPU [OPTIONS]",
        help="how a job can be spread over several GPUs",
        description="Find the parallel layouts with which a job fits on several GPUs, in the order of their cost.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser, without=_DECIDED)
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--captures", type=int, default=8, metavar="N", help="layouts to try at most (default: 8)")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..advise import plan
    from ..report.plans import plan_as_json, render_plan
    from .terminal import print_json, terminal, working

    with working(f"Looking for layouts of {options.job} on virtual {options.device} …"):
        found = plan(options.job, confidence=options.confidence, captures=options.captures, **given_options(options))
    if options.json:
        print_json(plan_as_json(found))
    else:
        terminal().print(render_plan(found))
    return 0 if found.best is not None else DOES_NOT_FIT
