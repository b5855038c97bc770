"""`oomcast devices`: the GPUs that oomcast knows."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "devices", help="list the GPUs that can be targets", description="List GPUs with the memory that is usable."
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..devices import all_gpus, find_gpu
    from ..report import render_devices
    from .terminal import print_json, terminal

    gpus = (find_gpu(options.name),) if options.name else all_gpus()
    if options.json:
        listed = [
            {
                "name": gpu.name,
                "driver_name": gpu.driver_name,
                "architecture": gpu.architecture,
                "compute_capability": list(gpu.compute_capability),
                "total_memory": gpu.total_memory,
                "usable_memory": gpu.usable_memory,
                "aliases": list(gpu.aliases),
                "source": gpu.source,
            }
            for gpu in gpus
        ]
        print_json(listed)
    else:
        terminal().print(render_devices(gpus))
    return 0
