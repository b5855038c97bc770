"""`oomcast contribute JOB`: a measured run packed into a file that can be given away, without code and names."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from .job_options import add_job_options
from .measured_options import add_measured_options, measured_options, options_of_run
from .terminal import print_json, terminal, working

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast contribute job.py --batch-size 32 --device rtx-4090 --environment torch-2.8-cu128 --nvidia-smi 21345MiB \\
      --output run.json
  oomcast contribute zoo:resnet50 --batch-size 64 --device rtx-3090 --run --output run.json
  oomcast contribute --show run.json"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "contribute",
        help="pack a measured run into a file that can be given away",
        description="Pack what a real run held, and what the job does with memory, into a file: no code, no names of "
        "modules, files or data. Nothing is sent.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser, required=False, without=("calibration", "use_calibration"))
    add_measured_options(parser).add_argument(
        "--out-of-memory", action="store_true", help="the run ended so; there is no figure"
    )
    packed = parser.add_argument_group("the file")
    packed.add_argument("--output", metavar="FILE", help="where it is written; it must not be there yet")
    packed.add_argument("--show", metavar="FILE", help="tell what is in such a file, without a job")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..report import contribution_as_json, render_contribution

    contribution = _shown(options) if options.show else _packed(options)
    if options.json:
        print_json(contribution_as_json(contribution))
    else:
        terminal().print(render_contribution(contribution, options.show or options.output))
    return 0


def _shown(options: argparse.Namespace) -> Any:
    from ..estimation import read_contribution

    if options.job:
        raise BadInput("--show stands alone, without a job.")
    return read_contribution(options.show)


def _packed(options: argparse.Namespace) -> Any:
    from ..estimation import contribute

    wanted = options_of_run(options, "a measured run", "oomcast contribute")
    if options.output is None:
        raise BadInput("give --output, the file that the measured run is written to.")
    with working(f"Capturing {options.job} on a virtual {wanted['device']} …"):
        return contribute(
            options.job,
            **measured_options(options),
            out_of_memory=options.out_of_memory,
            output=options.output,
            **wanted,
        )
