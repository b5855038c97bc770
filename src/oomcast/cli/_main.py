"""`oomcast COMMAND …`: finds the command, prints errors as one sentence, and gives the exit code.

Exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from .. import __version__
from ..errors import JobFailed, OomcastError
from . import (
    _advise,
    _bench,
    _calibrate,
    _campaign,
    _dataset,
    _devices,
    _diff,
    _environment,
    _equation,
    _estimate,
    _fit,
    _gpus,
    _pack,
    _replay,
)

__all__ = ["main"]

_COMMANDS = (
    _estimate,
    _fit,
    _gpus,
    _advise,
    _calibrate,
    _campaign,
    _equation,
    _dataset,
    _pack,
    _replay,
    _diff,
    _devices,
    _environment,
    _bench,
)
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = _Parser(
        prog="oomcast",
        description="How much GPU memory a training job will hold, before it runs, without a GPU.",
        epilog="Exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure.",
    )
    parser.add_argument("--version", action="version", version=f"oomcast {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in _COMMANDS:
        command.add_to(commands)
    options = parser.parse_args(arguments)
    try:
        code: int = options.run(options)
        sys.stdout.flush()
    except OomcastError as error:
        # A user's own lines are always shown; ours only to those who ask, by setting OOMCAST_TRACEBACK.
        if isinstance(error, JobFailed) or os.environ.get("OOMCAST_TRACEBACK"):
            sys.stderr.write(getattr(error, "traceback", ""))
        Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"oomcast: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("oomcast: interrupted\n")
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left (`oomcast devices | head`); that is no failure of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


class _Parser(argparse.ArgumentParser):
    """Takes `--batch_size` for `--batch-size`, as people write both; errors are one sentence with exit code 2."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        given = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args([_with_dashes(argument) for argument in given], namespace)

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"oomcast: {message}; see {self.prog} --help.\n")


def _with_dashes(argument: str) -> str:
    if not argument.startswith("--"):
        return argument
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value
