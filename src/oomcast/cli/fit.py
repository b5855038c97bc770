"""`oomcast fit JOB`: the largest batch, sequence, image, or other number that fits on a GPU."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from .job_options import add_job_options, given_options

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
        usage="oomcast fit JOB --device GPU [OPTIONS]",
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
        help="batch-size (default), seq-len, input-size (side of an image), accumulation, lora-rank, or a number that "
        "the job file defines",
    )
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--at-least", type=int, metavar="N", help="the smallest value to consider (default: one step)")
    parser.add_argument("--at-most", type=int, metavar="N", help="the largest value to consider")
    parser.add_argument(
        "--step", type=int, metavar="N", help="values are multiples of it (default: 1; seq-len 8, input-size 32)"
    )
    parser.add_argument("--captures", type=int, default=4, metavar="N", help="captures at most (default: 4)")
    parser.add_argument("--plot", metavar="FILE", help="draw memory against the parameter: .svg or .png")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..advise import fit
    from ..report.advice import fit_as_json, render_fit
    from ..report.figures import fit_svg
    from .files import check_figure, write_figure
    from .terminal import print_json, terminal, working

    wanted = given_options(options)
    for given, what in ((options.job, "a JOB"), (wanted.get("device"), "--device")):
        if not given:
            raise BadInput(f"oomcast fit needs {what}; see oomcast fit --help.")
    if "batch_size" in wanted and options.parameter.replace("_", "-").lower() == "batch-size":
        raise BadInput("--batch-size is what is looked for; leave it out, or name another --parameter.")
    check_figure(options.plot)
    with working(f"Looking for the largest {options.parameter} of {options.job} on a virtual {options.device} …"):
        largest = fit(
            options.job,
            parameter=options.parameter,
            confidence=options.confidence,
            at_least=options.at_least,
            at_most=options.at_most,
            step=options.step,
            most_captures=options.captures,
            **wanted,
        )
    if options.plot is not None:
        write_figure(options.plot, fit_svg(largest))
    if options.json:
        print_json(fit_as_json(largest))
    else:
        terminal().print(render_fit(largest))
    return 0 if largest.fits else DOES_NOT_FIT
