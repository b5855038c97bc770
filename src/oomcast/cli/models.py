"""`oomcast models`: the zoo, and what else can be named as a job."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "models",
        help="the models that can be named as a job",
        description="List the models of the zoo, and what other jobs can be named: libraries, configurations, files.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this model of the zoo")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..report.catalogue_text import models_as_json, render_models
    from ..zoo import find, names
    from .terminal import print_json, terminal

    wanted = (options.name.removeprefix("zoo:"),) if options.name else names()
    models = [find(name) for name in wanted]
    if options.json:
        print_json(models_as_json(models))
    else:
        terminal().print(render_models(models, with_others=not options.name))
    return 0
