"""`oomcast fit JOB`: the largest batch, sequence, image, or other number that fits on a GPU."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ..advise import fit
from ..errors import BadInput
from ..report._advise_json import fit_as_json
from ..report._advise_text import render_fit
from ..report._fit_svg import fit_svg
from ._files import check_figure, write_figure
from ._job_options import add_job_options, job_options
from ._progress import working
from ._terminal import terminal

__all__ = ["add_to"]

DOES_NOT_FIT = 3
_EXAMPLES = """examples:
  oomcast fit zoo:resnet50 --device rtx-3060
  oomcast fit job.py --device a100-40gb --precision amp-bf16 --confidence 0.99 --plot curve.svg
  oomcast fit hf:gpt2 --device rtx-4090 --batch-size 4 --parameter seq-len --at-most 1024
  oomcast fit job.py --device t4 --batch-size 32 --parameter WIDTH

exit codes: 0 a value fits, 3 not even the smallest does, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "fit",
        help="the largest batch, sequence length or image that fits",
        description="Find the largest value of a numeric parameter with which a job fits on a GPU, without the GPU.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser, required=False)
    parser.add_argument(
        "--parameter",
        default="batch-size",
        metavar="NAME",
        help="batch-size (default), seq-len, input-size (side of an image), or a number that the job file defines",
    )
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--at-least", type=int, metavar="N", help="the smallest value to consider (default: one step)")
    parser.add_argument("--at-most", type=int, metavar="N", help="the largest value to consider")
    parser.add_argument(
        "--step", type=int, metavar="N", help="values are multiples of it (default: 1; seq-len 8, input-size 32)"
    )
    parser.add_argument("--captures", type=int, default=4, metavar="N", help="captures at most (default: 4)")
    parser.add_argument("--plot", metavar="FILE", help="draw memory against the parameter: .svg or .png")
    parser.add_argument("--calibration", metavar="FILE", help="use this artifact of oomcast calibrate --output")
    parser.add_argument("--no-calibration", action="store_true", help="use the catalogue only")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for given, what in ((options.job, "a JOB"), (options.device, "--device")):
        if not given:
            raise BadInput(f"oomcast fit needs {what}; see oomcast fit --help.")
    if options.calibration and options.no_calibration:
        raise BadInput("--calibration and --no-calibration exclude each other; give one.")
    wanted = {name: value for name, value in job_options(options).items() if value is not None}
    if options.batch_size is not None and options.parameter.replace("_", "-").lower() == "batch-size":
        raise BadInput("--batch-size is what is looked for; leave it out, or name another --parameter.")
    check_figure(options.plot)
    with working(f"Looking for the largest {options.parameter} of {options.job} on a virtual {options.device} …"):
        found = fit(
            options.job,
            parameter=options.parameter,
            confidence=options.confidence,
            at_least=options.at_least,
            at_most=options.at_most,
            step=options.step,
            most_captures=options.captures,
            calibration=options.calibration,
            use_calibration=not options.no_calibration,
            **wanted,
        )
    if options.plot is not None:
        write_figure(options.plot, fit_svg(found))
    if options.json:
        print(json.dumps(fit_as_json(found), indent=2))
    else:
        terminal().print(render_fit(found))
    return 0 if found.fits else DOES_NOT_FIT
