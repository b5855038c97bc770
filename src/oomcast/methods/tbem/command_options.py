"""What the campaign's commands share: options that name Pythons, places of files, bars of progress."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import BadInput
from ..command_parts import Action, needing, progress_bars

if TYPE_CHECKING:
    from ..measure import Progress

__all__ = [
    "add_pythons",
    "capture_with",
    "gap_path",
    "needing_campaign",
    "progress_of",
    "read_interpreter",
    "static_estimates",
    "use_pythons",
]


def needing_campaign(action: Action) -> Action:
    return needing("campaign", action)


def add_pythons(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FRAMEWORK=PATH",
        help="the Python that has a framework: torch, keras, jax or mxnet",
    )


def use_pythons(options: argparse.Namespace) -> dict[str, str]:
    """Framework → the Python that runs its cases; captures of other frameworks' graphs use the same."""
    pythons = dict(map(read_interpreter, options.python))
    for framework, path in pythons.items():
        capture_with(framework, path)
    return pythons


def capture_with(framework: str, python: str) -> None:
    """From now on this framework's graphs, which give SGV, come from the Python that runs its cases."""
    from ...spec import FRAMEWORKS

    captured = "tensorflow" if framework == "keras" else framework
    if captured in FRAMEWORKS and captured != "torch":
        os.environ[f"OOMCAST_PYTHON_{captured.upper()}"] = python


def read_interpreter(text: str) -> tuple[str, str]:
    framework, equals, path = text.partition("=")
    known = ("torch", "keras", "jax", "mxnet")
    if not equals or not path or framework not in known:
        raise BadInput(f"cannot read --python {text!r}; write it like keras=PATH, for {', '.join(known)}.")
    return framework, path


def gap_path(file: str) -> Path:
    return Path(file).with_suffix(".gap.json")


@contextlib.contextmanager
def static_estimates() -> Iterator[Callable[[int, int], None]]:
    with progress_bars() as tell:
        yield lambda done, total: tell("static estimates", done, total)


@contextlib.contextmanager
def progress_of(campaign: str) -> Iterator[Callable[[Progress], None]]:
    """A bar for the campaign's cases, which says how many failed and how long the rest will take."""
    from .report import campaign_progress_words

    with progress_bars(lines=True) as tell:
        yield lambda now: tell(campaign, now.done, now.total, campaign_progress_words(now))
