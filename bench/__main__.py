"""`python -m bench GROUNDTRUTH [name …]`: the named benches, or all; exit code 1 if a bar is missed."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from rich import box
from rich.table import Table

from .report import Bar, Outcome, console, print_outcome

NAMES = ("replay", "recorded_steps", "liger", "real_models", "coverage", "speed", "rules", "peers")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("groundtruth", type=Path, help="folder with the measurements")
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(NAMES))
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        parser.error(f"no bench is called {unknown[0]}; there are {', '.join(NAMES)}")
    if not (given.groundtruth / "snapshots").is_dir():
        parser.error(f"{given.groundtruth} holds no measurements")
    outcomes = {name: _run(name, given.groundtruth) for name in given.names or NAMES}
    _print_summary(outcomes)
    return 0 if all(outcome.holds for outcome in outcomes.values()) else 1


def _run(name: str, groundtruth: Path) -> Outcome:
    started = time.perf_counter()
    if name == "coverage":
        return _run_coverage()
    with console.status(f"{name} …") as status:
        progress: Callable[[str], None] = lambda text: status.update(f"{name}: {text}")  # noqa: E731
        try:
            outcome: Outcome = importlib.import_module(f"bench.{name}").run(groundtruth, progress)
        except Exception as error:
            traceback.print_exc()
            outcome = Outcome(name, (), (), [Bar("the bench runs", f"{type(error).__name__}: {error}", False)])
    print_outcome(outcome)
    console.print(f"  {name}: {time.perf_counter() - started:.0f} s\n", style="dim")
    return outcome


def _run_coverage() -> Outcome:
    """It has its own command, with its own progress, tables and store of results."""
    bars = []
    for library, what in {"timm": "98 % of timm's names are captured", "hf": "60 HF model types are captured"}.items():
        command = [sys.executable, "-m", "bench.coverage", library]
        code = subprocess.run(command, check=False, cwd=Path(__file__).parents[1]).returncode
        bars.append(Bar(what, "see the table above", code == 0))
    return Outcome("coverage", (), (), bars)


def _print_summary(outcomes: dict[str, Outcome]) -> None:
    table = Table(title="Bar by bar", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in ("bench", "bar", "figure", "verdict"):
        table.add_column(column, overflow="fold")
    for name, outcome in outcomes.items():
        for bar in outcome.bars:
            table.add_row(name, bar.what, bar.figure, bar.verdict)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
