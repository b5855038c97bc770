"""`python -m lab COMMAND …`: the one front door of the laboratory. Only the command that is asked for is loaded."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oomcast.errors import OomcastError, UnknownName

__all__ = ["COMMANDS", "Command", "main"]

_INTERRUPTED = 130


class Command(NamedTuple):
    module: str
    """It has `add_to`, which adds the command's parser, with `run` as a default."""
    summary: str


COMMANDS: Mapping[str, Command] = {
    "accuracy": Command("lab.accuracy.command", "estimates against measured runs"),
    "same-bytes": Command("lab.same_bytes.command", "whether a change of the code changed a predicted byte"),
    "fuzz": Command("lab.fuzz.command", "hostile inputs of every kind"),
    "endurance": Command("lab.endurance", "thousands of estimates: same bytes, flat memory; large models"),
    "kills": Command("lab.kills", "oomcast killed at random moments, and what must hold afterwards"),
    "serve": Command("lab.serve_load", "the service under load, killed, attacked"),
    "house": Command("lab.house", "the size and the order of the source, in figures"),
    "bench": Command("lab.benchmarks.command", "what oomcast promises, measured"),
    "scripts": Command("lab.scripts.command", "public training scripts through oomcast run"),
    "train": Command("lab.training.command", "train the learned estimators again from GPUMemNet's files"),
    "compiled": Command("lab.compiled", "torch.compile on the CPU: predicted against really run"),
    "configs": Command("lab.configs", "public configuration files of training frameworks, read as they are"),
    "figures": Command("lab.accuracy.figures.make", "make the table of cited figures again"),
    "distill": Command("lab.cudnn.distill", "make the table of cuDNN's workspaces that ships"),
    "pictures": Command("lab.pictures", "take the documentation's pictures again"),
    "build-stub": Command("lab.cudnn.build_stub", "compile the stand-ins for libcuda that ship"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Errors are one sentence; the exit codes are those of oomcast."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except OomcastError as error:
        print(f"lab: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("lab: interrupted", file=sys.stderr)
        return _INTERRUPTED


def _run(given: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab", description="The laboratory: what judges oomcast, and what makes its data files."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    wanted = given[0] if given and not given[0].startswith("-") else None
    if wanted is None:
        for name, command in COMMANDS.items():
            commands.add_parser(name, help=command.summary)
        parser.parse_args(given)
        parser.print_help()
        return 0
    if wanted not in COMMANDS:
        raise UnknownName("command of the laboratory", wanted, COMMANDS, "See python -m lab.")
    importlib.import_module(COMMANDS[wanted].module).add_to(commands)
    options = parser.parse_args(given)
    code: int = options.run(options)
    return code


if __name__ == "__main__":
    sys.exit(main())
