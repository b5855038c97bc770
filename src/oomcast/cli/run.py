"""`oomcast run -- SCRIPT ARGS`: a training script as it is, on a virtual GPU."""

from __future__ import annotations

import argparse
from typing import Any

from ..spec import SCRIPT_DESCRIPTIONS
from .estimate import DOES_NOT_FIT, add_report_options, print_answer, report_targets
from .job_options import add_options, given_options
from .parser import Parser

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast run --device a100-40gb -- train.py --batch_size 32
  oomcast run --device rtx-4090 --json -- python -m mypackage.train config.yaml
  oomcast run --device h100-80gb -- torchrun --nproc_per_node 1 train.py
  oomcast run --worst-batch --max-steps 5 -- accelerate launch train.py

exit codes: 0 fits, 3 does not fit, 2 bad input (the script's own errors included), 1 failure, or too little was seen"""


def add_to(commands: Any) -> None:
    parser: Parser = commands.add_parser(
        "run",
        usage="oomcast run [--device GPU] [OPTIONS] -- SCRIPT ARGUMENTS",
        help="how much a training script holds, run as it is on a virtual GPU",
        description="Run a training script that was written for CUDA on a virtual GPU, unchanged, until its peak has "
        "repeated; say how much memory it will hold.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser, SCRIPT_DESCRIPTIONS)
    parser.add_argument(
        "--writes", dest="write_files", action="store_true", default=argparse.SUPPRESS, help="short for --write-files"
    )
    add_report_options(parser)
    parser.add_argument(
        "line",
        nargs=argparse.REMAINDER,
        metavar="SCRIPT …",
        help="the script and its arguments, or a line that starts with python, torchrun or accelerate launch",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..estimation import Verdict
    from ..estimation import run as run_script
    from ..trace import Ending
    from .terminal import working

    targets = report_targets(options)
    line = options.line[1:] if options.line[:1] == ["--"] else options.line
    given = given_options(options, SCRIPT_DESCRIPTIONS)
    with working(f"Running {' '.join(line)[:60]} on a virtual GPU …"):
        answer = run_script(line, keep_history=bool(targets), **given)
    print_answer(answer, options)
    if answer.verdict is Verdict.UNKNOWN:
        script = answer.script
        by_itself = script is not None and script.ending in (Ending.FAILED, Ending.TIME_LIMIT)
        return 2 if by_itself else 1
    return 0 if answer.fits else DOES_NOT_FIT
