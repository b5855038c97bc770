"""`oomcast environment make|list`: environments for frameworks that cannot live beside the others."""

from __future__ import annotations

import argparse
from typing import Any

from ..capture import ENVIRONMENTS, environments, make_environment
from ._terminal import terminal

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "environment",
        help="make an environment for a framework that needs its own",
        description=f"Environments of their own, for {', '.join(ENVIRONMENTS)}: captures find them by themselves.",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))
    make = actions.add_parser("make", help="make it, or make it anew: installs packages with pip, outside of this one")
    make.add_argument("framework", metavar="FRAMEWORK", help=", ".join(ENVIRONMENTS))
    make.set_defaults(run=_make)
    listed = actions.add_parser("list", help="which there are")
    listed.set_defaults(run=_list)


def _make(options: argparse.Namespace) -> int:
    console = terminal()

    def say(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    say(f"made: {make_environment(options.framework, say)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    for framework, python in environments().items():
        terminal().print(
            f"{framework}: {python or f'not made yet (oomcast environment make {framework})'}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    return 0
