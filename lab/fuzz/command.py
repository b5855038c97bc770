"""`python -m lab fuzz`: hostile inputs of every kind, without a traceback, a hang, growth, or code that is run."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput, UnknownName

__all__ = ["add_to"]

_INPUTS = 20_000
_SECONDS = 300.0


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("fuzz", help=__doc__.partition(": ")[2])
    parser.add_argument("--targets", nargs="+", metavar="NAME", help="only these kinds of input")
    parser.add_argument("--inputs", type=int, default=_INPUTS, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=_SECONDS, metavar="S", help="at most (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="other inputs (default: 0)")
    parser.add_argument("--keep", metavar="FOLDER", help="write what was found there")
    parser.add_argument("--show", type=int, metavar="N", help="write this input of the one target to stdout, and end")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from .running import Finding, attack, input_of
    from .targets import TARGETS

    names = options.targets or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            raise UnknownName("target", name, TARGETS)
    if options.show is not None:
        if len(names) != 1:
            raise BadInput("--show is for one target; name it with --targets.")
        sys.stdout.buffer.write(input_of(names[0], options.show, options.seed, TARGETS[names[0]].seeds()))
        return 0
    whole = sum(TARGETS[name].share for name in names)
    until = time.monotonic() + options.seconds
    total = 0
    found: list[Finding] = []
    for place, name in enumerate(names):
        # Evenly: what one kind does not need is left for the slow ones, which come last.
        deadline = time.monotonic() + max(0.0, until - time.monotonic()) / (len(names) - place)
        count = max(1, round(options.inputs * TARGETS[name].share / whole))
        try:
            outcome, findings = attack(name, count, options.seed, deadline)
        except ImportError as error:
            print(f"{name:16} not attacked: {error.name} is not installed", flush=True)
            continue
        total += outcome.inputs
        found += findings
        print(
            f"{name:16} {outcome.inputs:8} inputs  {outcome.accepted:7} accepted  {outcome.seconds:7.1f} s  "
            f"{len(findings)} found",
            flush=True,
        )
        for one in findings[:20]:
            print(f"  {one.target} {one.number}: {one.what[:800]}", flush=True)
            if options.keep:
                _keep(Path(options.keep), one, options.seed)
    print(f"{total} inputs, {len(found)} found")
    return 1 if found else 0


def _keep(folder: Path, found: Any, seed: int) -> None:
    from .running import input_of
    from .targets import TARGETS

    folder.mkdir(parents=True, exist_ok=True)
    target = TARGETS[found.target]
    name = f"{found.target}-{seed}-{found.number}{target.suffix}"
    (folder / name).write_bytes(input_of(found.target, found.number, seed, target.seeds()))
