"""`oomcast venv make|list`: virtual environments of Python for frameworks that cannot live beside the others."""

from __future__ import annotations

import argparse
from typing import Any

from .terminal import print_line

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "venv",
        help="make a virtual environment for a framework that needs its own",
        description="Virtual environments of Python for frameworks that cannot live beside the others, such as mxnet: "
        "captures find them by themselves.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))
    make = actions.add_parser("make", help="make it, or make it anew: installs packages with pip, outside of this one")
    make.add_argument("framework", metavar="FRAMEWORK", help="see oomcast venv list")
    make.set_defaults(run=_make)
    listed = actions.add_parser("list", help="which there are")
    listed.set_defaults(run=_list)


def _make(options: argparse.Namespace) -> int:
    from ..capture import make_environment

    print_line(f"made: {make_environment(options.framework, print_line)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    from ..capture import environments

    for framework, python in environments().items():
        print_line(f"{framework}: {python or f'not made yet (oomcast venv make {framework})'}")
    return 0
