"""`oomcast gpus JOB`: which GPU is enough, and which is the cheapest of them."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from .job_options import add_job_options, given_options

__all__ = ["add_to"]

NONE_IS_ENOUGH = 3
_EXAMPLES = """examples:
  oomcast gpus zoo:resnet50 --batch-size 64
  oomcast gpus hf:gpt2 --batch-size 8 --seq-len 1024 --precision amp-bf16 --prices prices.csv

A file of prices is CSV with the columns gpu and price_per_hour; currency, provider, instance and as_of are shown if
they are there. Without one, list prices that ship with oomcast are shown with their date.

exit codes: 0 a GPU is enough, 3 none is, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "gpus",
        usage="oomcast gpus JOB --batch-size N [OPTIONS]",
        help="the smallest and the cheapest GPU that is enough",
        description="Rank all GPUs for one job: headroom, probability of running out of memory, price.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser, required=False)
    parser.add_argument("--confidence", type=float, default=0.95, metavar="SHARE", help="default: 0.95")
    parser.add_argument("--prices", metavar="FILE.csv", help="your own prices per hour")
    parser.add_argument("--all", action="store_true", help="list the cards that are far too small as well")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..advise import rank_gpus, read_prices
    from ..report.advice import gpus_as_json, render_gpus
    from .terminal import print_json, terminal, working

    wanted = given_options(options)
    for given, what in ((options.job, "a JOB"), (wanted.get("batch_size"), "--batch-size")):
        if not given:
            raise BadInput(f"oomcast gpus needs {what}; see oomcast gpus --help.")
    if "device" in wanted:
        raise BadInput("oomcast gpus ranks every GPU; leave --device out, or use oomcast estimate for one.")
    prices = None if options.prices is None else read_prices(options.prices)
    with working(f"Running {options.job} on one virtual GPU of each kind …"):
        ranking = rank_gpus(options.job, confidence=options.confidence, prices=prices, **wanted)
    if options.json:
        print_json(gpus_as_json(ranking))
    else:
        terminal().print(render_gpus(ranking, options.all))
    return 0 if ranking.fits else NONE_IS_ENOUGH
