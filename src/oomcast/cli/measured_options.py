"""The options that tell of a real run, the same for every command that learns from one."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput
from .job_options import given_options

__all__ = ["add_measured_options", "measured_options", "options_of_run"]


def add_measured_options(parser: argparse.ArgumentParser) -> Any:
    """The group of those of which exactly one is given."""
    measured = parser.add_argument_group("what was measured, exactly one")
    measured.add_argument("--nvidia-smi", metavar="SIZE", help="what nvidia-smi shows for the process; a number is MiB")
    measured.add_argument("--snapshot", metavar="FILE", help="of torch.cuda.memory._dump_snapshot(), or its JSON form")
    measured.add_argument("--memory-stats", metavar="FILE", help="JSON of torch.cuda.memory_stats()")
    measured.add_argument("--run", dest="real_run", action="store_true", help="run the job now, on this machine's GPU")
    return measured


def measured_options(options: argparse.Namespace) -> dict[str, Any]:
    """As keywords of `oomcast.calibrate` and `oomcast.contribute`."""
    return {
        "nvidia_smi": options.nvidia_smi,
        "snapshot": options.snapshot,
        "memory_stats": options.memory_stats,
        "run": options.real_run,
    }


def options_of_run(options: argparse.Namespace, what: str, command: str) -> dict[str, Any]:
    """The options of the job that was run; raises BadInput where the job is not told in full."""
    wanted = given_options(options)
    told = {"JOB": options.job, "--batch-size": wanted.get("batch_size"), "--device": wanted.get("device")}
    for name, value in told.items():
        if value is None:
            raise BadInput(f"{what} needs {name}; see {command} --help.")
    return wanted
