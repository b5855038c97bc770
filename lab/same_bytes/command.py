"""`python -m lab same-bytes record|compare|list`: has a change of the code changed a predicted byte?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oomcast.errors import UnknownName

from .comparing import compare
from .jobs import FRAMEWORKS, JOBS

__all__ = ["FIGURES_OF_0_1_0", "add_to"]

FIGURES_OF_0_1_0 = Path(__file__).parent / "figures_of_0.1.0.json.gz"
_EXAMPLES = """examples:
  PYTHONPATH=src:. python -m lab same-bytes record after.json
  python -m lab same-bytes compare after.json
  python -m lab same-bytes compare before.json after.json

Which code is recorded is said by PYTHONPATH. Jobs of other frameworks are asked where OOMCAST_PYTHON_TENSORFLOW,
OOMCAST_PYTHON_JAX, OOMCAST_PYTHON_MXNET and OOMCAST_PYTHON_ONNX name a Python that has them."""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "same-bytes",
        help="whether a change of the code changed a predicted byte",
        description=f"Ask oomcast about {len(JOBS)} jobs, write every figure down, and compare two such records.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    recording = actions.add_parser("record", help="run the jobs and write their figures")
    recording.add_argument("file", type=Path, metavar="FILE")
    recording.add_argument("--only", metavar="TEXT", help="only jobs whose name contains it")
    recording.add_argument(
        "--frameworks", nargs="+", default=FRAMEWORKS, metavar="NAME", help=f"of {', '.join(FRAMEWORKS)} (default: all)"
    )
    recording.set_defaults(run=_record)
    comparing = actions.add_parser("compare", help="tell what differs; exit code 1 if anything does")
    comparing.add_argument("records", nargs="+", type=Path, metavar="FILE", help="[BEFORE] AFTER (BEFORE: 0.1.0's)")
    comparing.set_defaults(run=_compare)
    actions.add_parser("list", help="the jobs").set_defaults(run=_list)


def _record(options: argparse.Namespace) -> int:
    for name in options.frameworks:
        if name not in FRAMEWORKS:
            raise UnknownName("framework", name, FRAMEWORKS)
    from .recording import record

    return record(options.file.resolve(), options.only, tuple(options.frameworks))


def _compare(options: argparse.Namespace) -> int:
    *before, after = options.records[:2]
    return compare(before[0] if before else FIGURES_OF_0_1_0, after)


def _list(options: argparse.Namespace) -> int:
    for job in JOBS:
        asked = " ".join(f"{name}={value}" for name, value in job.options.items())
        print(f"{job.framework:10} {job.kind:14} {job.name:40} {job.job} {asked}")
    return 0
