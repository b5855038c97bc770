"""`oomcast estimate JOB`: will it fit, how much will it hold, and why."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from .job_options import add_job_options, add_options, given_options
from .parser import Parser

if TYPE_CHECKING:
    from ..estimation import Estimate

__all__ = ["DOES_NOT_FIT", "add_report_options", "add_to", "print_answer", "report_targets"]

DOES_NOT_FIT = 3
_ESTIMATOR = "--estimator"
_DEFAULT = "simulator"
_EXAMPLES = """examples:
  oomcast estimate zoo:resnet50 --batch-size 64 --device rtx-3090
  oomcast estimate job.py --batch-size 32 --device a100-40gb --precision amp-bf16 --json
  oomcast estimate zoo:llama-2-7b --batch-size 1 --seq-len 2048 --precision bf16 --device h100-80gb --html step.html
  oomcast estimate hf:gpt2 --batch-size 8 --seq-len 1024 --device rtx-4090 --optimizer adamw

exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: Parser = commands.add_parser(
        "estimate",
        usage="oomcast estimate JOB --batch-size N --device GPU [OPTIONS]",
        help="how much a training job will hold, and whether it fits",
        description="Estimate the GPU memory of a training job, without a GPU.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser)
    parser.add_argument(
        _ESTIMATOR,
        default=_DEFAULT,
        metavar="NAME",
        help="simulator (default), tbem, equation, learned, …; oomcast estimators lists all with their own options, "
        "which are taken beside this one",
    )
    add_report_options(parser)
    parser.before_parsing = _add_the_estimators_options
    parser.set_defaults(run=run, owner_of=_owner_of)


def add_report_options(parser: Parser) -> None:
    """How the answer is shown, and what is written beside it."""
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


def _add_the_estimators_options(parser: Parser, words: Sequence[str]) -> None:
    """Only those of the estimator that is asked for: to load all of them, with their libraries, takes seconds."""
    name = _estimator_in(words)
    if name != _DEFAULT:
        from ..estimation import find_estimator

        add_options(parser, (find_estimator(name).options,))


def _estimator_in(words: Sequence[str]) -> str:
    name = _DEFAULT
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if word == _ESTIMATOR and following:
            name = following
        elif word.startswith(f"{_ESTIMATOR}="):
            name = word.partition("=")[2]
    return name


def _owner_of(flag: str) -> str:
    """What a flag that the command does not have would need: the estimator whose own it is."""
    from ..estimation.estimators import owner_of_option

    owner = owner_of_option(flag.lstrip("-").replace("-", "_"))
    return "" if owner is None else f"is an option of the estimator {owner}; add {_ESTIMATOR} {owner}."


def run(options: argparse.Namespace) -> int:
    from ..estimation import estimate, find_estimator
    from .terminal import working

    targets = report_targets(options)
    own = given_options(options, (find_estimator(options.estimator).options,))
    with working(f"Running {options.job} on a virtual {options.device} …"):
        answer = estimate(
            options.job, estimator=options.estimator, keep_history=bool(targets), **given_options(options), **own
        )
    print_answer(answer, options)
    return 0 if answer.fits else DOES_NOT_FIT


def report_targets(options: argparse.Namespace) -> list[str]:
    """The files that are asked for, checked before anything runs."""
    from .files import check_figure, check_targets

    targets = [file for file in (options.html, options.figure, options.snapshot) if file]
    check_targets(targets)
    check_figure(options.figure)
    return targets


def print_answer(answer: Estimate, options: argparse.Namespace) -> None:
    """The files that were asked for, then the answer itself."""
    from ..report import estimate_as_json, render_estimate
    from .terminal import print_json, terminal

    _write_reports(answer, options)
    if options.json:
        print_json(estimate_as_json(answer))
    else:
        terminal().print(render_estimate(answer))


def _write_reports(answer: Estimate, options: argparse.Namespace) -> None:
    from ..report import draw_estimate, estimate_html, snapshot_as_pickle
    from .files import write_figure, write_target

    if options.html:
        write_target(options.html, estimate_html(answer).encode())
    if options.figure:
        write_figure(options.figure, draw_estimate(answer))
    if options.snapshot:
        if answer.history is None:
            name = answer.provenance.get("estimator")
            raise BadInput(f"the estimator {name} follows no allocations, so it has no snapshot to write.")
        write_target(options.snapshot, snapshot_as_pickle(answer.history))
