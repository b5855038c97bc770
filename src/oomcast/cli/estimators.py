"""`oomcast estimators`: the ways to an estimate that `--estimator` can name, and the options that each adds."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "estimators",
        help="the ways to an estimate, and the options of each",
        description="List the estimators that are installed, with the options of their own that each adds to "
        "oomcast estimate.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..errors import OomcastError
    from ..estimation import Estimator, estimator_names, find_estimator
    from ..report.catalogue_text import estimators_as_json, render_estimators
    from .terminal import print_json, terminal

    listed: dict[str, Estimator | OomcastError] = {}
    for name in estimator_names():
        try:
            listed[name] = find_estimator(name)
        except OomcastError as error:  # its packages are missing: the others are listed all the same
            listed[name] = error
    if options.json:
        print_json(estimators_as_json(listed))
    else:
        terminal().print(render_estimators(listed))
    return 0
