"""`oomcast diff A B`: what changed between two estimates, or between a prediction and the real run."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast estimate job.py --batch-size 32 --device a100-40gb --json > before.json
  oomcast estimate job.py --batch-size 64 --device a100-40gb --json > after.json
  oomcast diff before.json after.json

  oomcast estimate job.py --batch-size 32 --device a100-40gb --snapshot predicted.pickle
  oomcast diff predicted.pickle recorded.pickle"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "diff",
        help="what changed between two estimates, or a prediction and a real run",
        description="Compare what oomcast estimate --json or --snapshot wrote with another of these, or with a "
        "snapshot of torch.cuda.memory._dump_snapshot() (read without executing it), and explain the difference.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("before", metavar="A", help="an estimate's JSON, or a memory snapshot")
    parser.add_argument("after", metavar="B", help="what it is compared with")
    parser.add_argument("--depth", type=int, default=2, metavar="N", help="parts of module paths to keep (default: 2)")
    parser.add_argument("--html", metavar="FILE", help="also write a page")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..report import compare, difference_as_json, difference_html, read_side, render_difference
    from .files import check_targets, write_target
    from .terminal import print_json, terminal

    if options.depth < 1:
        raise BadInput(f"the depth must be at least 1, not {options.depth}.")
    if options.html:
        check_targets([options.html])
    difference = compare(read_side(options.before), read_side(options.after), options.depth)
    if options.html:
        write_target(options.html, difference_html(difference).encode())
    if options.json:
        print_json(difference_as_json(difference))
    else:
        terminal().print(render_difference(difference))
    return 0
