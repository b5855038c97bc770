"""`oomcast environments`: the software stacks under a job that can be named by `--environment`."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "environments",
        help="the software stacks that can be targets",
        description="List the software stacks: which versions of a framework each stands for, with CUDA and cuDNN. "
        "A version such as torch-2.6 names its stack too.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..devices import all_stacks, find_stack
    from ..report.catalogue_text import environments_as_json, render_environments
    from ..spec import FRAMEWORKS
    from .terminal import print_json, terminal

    by_framework = sorted(all_stacks(), key=lambda stack: FRAMEWORKS.index(stack.framework))  # stable: oldest first
    stacks = [find_stack(options.name)] if options.name else by_framework
    if options.json:
        print_json(environments_as_json(stacks))
    else:
        terminal().print(render_environments(stacks))
    return 0
