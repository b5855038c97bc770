"""`oomcast devices`: the GPUs that oomcast knows."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "devices",
        help="list the GPUs that can be targets",
        description="List GPUs with the memory that is usable: NVIDIA's, which runs were measured on, then those of "
        "other makers. Any card can be told by its figures, too: 24GiB, or custom:capability=8.9,memory=24GiB.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..devices import all_gpus, find_gpu, other_gpus
    from ..report import render_devices
    from ..report.catalogue_text import devices_as_json
    from .terminal import print_json, terminal

    gpus = (find_gpu(options.name),) if options.name else (*all_gpus(), *other_gpus())
    if options.json:
        print_json(devices_as_json(gpus))
    else:
        terminal().print(render_devices(gpus))
    return 0
