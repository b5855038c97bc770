"""`oomcast COMMAND …`: finds the command, prints errors as one sentence, and gives the exit code.

Exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure. Only the command that is asked for is loaded, and what it
needs beside its options only when it runs: help must not wait for numpy. How long `--help` takes beside Python itself:

    python -m timeit -n 1 -r 20 -s "import subprocess" "subprocess.run(['oomcast', 'estimate', '--help'], stdout=-3)"
    python -m timeit -n 1 -r 20 -s "import subprocess" "subprocess.run(['python', '-c', 'pass'])"
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from .. import __version__
from ..errors import BadInput, JobFailed, OomcastError, UnknownName
from .output import CarefulOutput, harmless
from .parser import Parser

__all__ = ["COMMANDS", "GROUP", "run_command_line"]

_INTERRUPTED = 130

COMMANDS: Mapping[str, str] = {
    "estimate": "how much a training job will hold, and whether it fits",
    "run": "how much a training script holds, run as it is on a virtual GPU",
    "fit": "the largest batch, sequence length or image that fits",
    "plan": "how a job can be spread over several GPUs",
    "gpus": "the smallest and the cheapest GPU that is enough",
    "advise": "what to change so that a job fits",
    "calibrate": "learn from one real run what an environment adds on a GPU",
    "contribute": "pack a measured run into a file that can be given away",
    "pack": "which jobs can share which GPU",
    "serve": "a page to play with and a service to ask",
    "replay": "a recorded CUDA memory snapshot through the simulated allocator",
    "diff": "what changed between two estimates, or between a prediction and the real run",
    "models": "the models that can be named as a job",
    "devices": "the GPUs that can be targets",
    "environments": "the software stacks that can be targets",
    "estimators": "the ways to an estimate, and the options of each",
    "accuracy": "how right the estimates are, on measured runs",
    "venv": "make virtual environments for frameworks that cannot live beside the others",
}
"""The core's own commands, each in the file of its name in this room. Others come by entry points."""
GROUP = "oomcast.commands"
"""The entry points of commands: the name is the command, the value a module with `add_to` and, for the list of all
commands, `SUMMARY`. It should import nothing heavy before the command runs."""

_MOVED: Mapping[tuple[str, ...], str] = {
    ("bench",): "python -m lab accuracy, in a checkout of the repository; oomcast accuracy shows recorded results",
    ("environment",): "oomcast venv makes virtual environments; oomcast environments lists the software stacks",
}
"""What 0.1.0 had elsewhere, told until the next release."""


def run_command_line(arguments: Sequence[str] | None, before_command: Callable[[], None]) -> int:
    """What `oomcast.cli.main` does; `before_command` is called when everything is read, before the command runs."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with CarefulOutput() as output:
        try:
            code = _run(words, before_command)
        except SystemExit:
            if not output.loss():
                raise
            code = OomcastError.exit_code
        lost = output.loss()
        if lost:
            # Nothing may claim an answer that nobody can read. A reader who has gone (`| head`) has read enough.
            sys.stderr.write(f"oomcast: the output was lost: {lost}.\n")
            return OomcastError.exit_code
        return code


def _run(words: list[str], before_command: Callable[[], None]) -> int:
    try:
        return _command(words, before_command)
    except OomcastError as error:
        # A user's own lines are always shown; ours only to those who ask, by setting OOMCAST_TRACEBACK.
        if isinstance(error, JobFailed) or os.environ.get("OOMCAST_TRACEBACK"):
            sys.stderr.write(harmless(getattr(error, "traceback", "")))
        sys.stderr.write(f"oomcast: {harmless(str(error))}\n")
        return error.exit_code
    except KeyboardInterrupt:
        sys.stderr.write("oomcast: interrupted\n")
        return _INTERRUPTED
    except (MemoryError, OSError) as error:
        if os.environ.get("OOMCAST_TRACEBACK"):
            raise
        sys.stderr.write(f"oomcast: this machine could not do it: {harmless(_in_words(error))}.\n")
        return OomcastError.exit_code


def _in_words(error: MemoryError | OSError) -> str:
    if isinstance(error, MemoryError):
        return "it has too little memory, or a limit (ulimit -v) is too low"
    place = f" ({error.filename})" if error.filename is not None else ""
    return f"{error.strerror or error}{place}"


def _command(words: list[str], before_command: Callable[[], None]) -> int:
    parser = Parser(
        prog="oomcast",
        description="How much GPU memory a training job will hold, before it runs, without a GPU.",
        epilog="Exit codes: 0 fits, 3 does not fit, 2 bad input, 1 failure.",
        formatter_class=functools.partial(argparse.HelpFormatter, max_help_position=20),
    )
    parser.add_argument("--version", action="version", version=f"oomcast {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", prog="oomcast", parser_class=Parser)
    wanted = next((word for word in words if not word.startswith("-")), None)
    if wanted is None:
        for name, summary in _summaries().items():
            commands.add_parser(name, help=summary)
        parser.parse_args(words)
        parser.print_help()
        return 0
    _check_not_moved(words)
    _load(wanted).add_to(commands)
    options, unknown = parser.parse_known_args(words)
    if unknown:
        raise _unknown_words(commands.choices[wanted], unknown, getattr(options, "owner_of", None))
    before_command()
    code: int = options.run(options)
    return code


def _check_not_moved(words: Sequence[str]) -> None:
    for old, new in _MOVED.items():
        if tuple(words[: len(old)]) == old:
            raise BadInput(f"oomcast {' '.join(old)} has moved: {new}.")


def _unknown_words(parser: Parser, words: Sequence[str], owner_of: object) -> BadInput:
    """For what no flag or argument takes. `owner_of` is the command's, and says what a flag would need."""
    flag = next((word.partition("=")[0] for word in words if word.startswith("--")), None)
    if flag is None:
        return BadInput(f"unrecognized arguments: {' '.join(words)}; see {parser.prog} --help.")
    needed = owner_of(flag) if callable(owner_of) else ""
    if needed:
        return BadInput(f"{flag} {needed}")
    return UnknownName("option", flag, parser.flags(), f"See {parser.prog} --help.")


def _load(command: str) -> ModuleType:
    """The module of a command, which has `add_to`."""
    if command in COMMANDS:
        return importlib.import_module(f".{command}", __package__)
    module = _others().get(command)
    if module is None:
        raise UnknownName("command", command, (*COMMANDS, *_others()), "See oomcast --help.")
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise OomcastError(f"the command {command} cannot be loaded: {error}.") from error


def _summaries() -> dict[str, str]:
    return {**COMMANDS, **{name: _summary(module) for name, module in _listed().items()}}


def _summary(module: str) -> str:
    """What the module of a command says of it: its SUMMARY, else the first line of its text after the name."""
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:  # a command that cannot be loaded must not take the list of all others with it
        return f"cannot be loaded: {error}"
    first = (loaded.__doc__ or "").strip().partition("\n")[0]
    return str(getattr(loaded, "SUMMARY", (first.partition(": ")[2] or first).rstrip("."))).replace("%", "%%")


def _listed() -> dict[str, str]:
    """What `_others` gives, read from the files of the installed packages themselves.

    For the list of commands alone: importlib.metadata loads Python's mail parser, which takes more time than all else
    that `oomcast --help` does. Packages within archives are not in the list; their commands can be called all the same.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for package in os.scandir(folder or os.curdir):
                if package.name.endswith((".dist-info", ".egg-info")):
                    found = {**_declared(os.path.join(package.path, "entry_points.txt")), **found}
    return dict(sorted(found.items()))


def _declared(entry_points: str) -> dict[str, str]:
    """The commands that one package declares: name → module."""
    try:
        with open(entry_points, encoding="utf-8") as file:
            _, found, after = file.read().partition(f"[{GROUP}]")
    except OSError:
        return {}
    lines = after.partition("\n[")[0].splitlines() if found else []
    pairs = (line.partition("=")[::2] for line in lines if "=" in line)
    return {name.strip(): module.strip() for name, module in pairs}


def _others() -> dict[str, str]:
    """The commands that methods and other packages bring: name → module."""
    from importlib import metadata

    return {
        entry.name: entry.value for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name)
    }
