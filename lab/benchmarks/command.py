"""`python -m lab bench NAME …`: what oomcast promises, measured, each promise as a bar; or one of the studies."""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from oomcast.errors import BadInput, UnknownName

from .report import Bar, Outcome, console, print_outcome

__all__ = ["BARS", "STUDIES", "add_to"]

BARS = ("replay", "recorded_steps", "liger", "real_models", "coverage", "speed", "cold_commands", "rules", "peers")
"""Each has `run(truth, progress)` in the module of its name. All run where none is named."""
STUDIES = (
    "chart_libraries",
    "coverage",
    "cudnn_table",
    "dnnperf",
    "equations",
    "frameworks",
    "ladder",
    "largest_batch",
    "llmem",
    "onnx_exports",
    "onnx_training",
    "packing",
    "remedies",
    "report_page",
    "slider",
    "store",
    "symbolic_recovery",
    "tbem",
    "trees",
    "unseen",
    "xla",
)
"""Each has arguments of its own, which stand behind its name."""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "bench",
        help="what oomcast promises, measured",
        description="Run benchmarks; exit code 1 if a bar is missed. Without a name, all that have bars.",
        epilog="""examples:
  python -m lab bench replay speed --truth ../shared/groundtruth
  python -m lab bench frameworks table --help""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_truth(parser)
    parser.add_argument(
        "names", nargs=argparse.REMAINDER, metavar="NAME", help=f"of these: {', '.join(BARS)}; or one of these with "
        f"its own arguments: {', '.join(STUDIES)}"
    )  # fmt: skip
    parser.set_defaults(run=run)


def _add_truth(parser: argparse.ArgumentParser) -> None:
    """Before the names or behind them."""
    parser.add_argument("--truth", type=Path, metavar="DIR", help="the folder with the measurements")


def run(options: argparse.Namespace) -> int:
    if options.names and options.names[0] in STUDIES:
        return _study(*options.names)
    parser = argparse.ArgumentParser(prog="python -m lab bench")
    parser.add_argument("names", nargs="*", metavar="NAME")
    _add_truth(parser)
    given = parser.parse_args(options.names, argparse.Namespace(truth=options.truth))
    for name in given.names:
        if name not in BARS:
            raise UnknownName("benchmark", name, (*BARS, *STUDIES))
    if given.truth is None:
        raise BadInput("name the folder with the measurements: --truth DIR.")
    if not (given.truth / "snapshots").is_dir():
        raise BadInput(f"{str(given.truth)!r} holds no measurements: there is no folder snapshots in it.")
    outcomes = {name: _run(name, given.truth) for name in given.names or BARS}
    _print_summary(outcomes)
    return 0 if all(outcome.holds for outcome in outcomes.values()) else 1


def _study(name: str, *arguments: str) -> int:
    """In a process of its own: some choose their interpreter's settings before anything is loaded."""
    return subprocess.run([sys.executable, "-m", f"{__package__}.{name}", *arguments], check=False).returncode


def _run(name: str, groundtruth: Path) -> Outcome:
    started = time.perf_counter()
    if name == "coverage":
        return _run_coverage()
    with console.status(f"{name} …") as status:
        progress: Callable[[str], None] = lambda text: status.update(f"{name}: {text}")  # noqa: E731
        try:
            outcome: Outcome = importlib.import_module(f".{name}", __package__).run(groundtruth, progress)
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
        bars.append(Bar(what, "see the table above", _study("coverage", library) == 0))
    return Outcome("coverage", (), (), bars)


def _print_summary(outcomes: dict[str, Outcome]) -> None:
    table = Table(title="Bar by bar", box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in ("bench", "bar", "figure", "verdict"):
        table.add_column(column, overflow="fold")
    for name, outcome in outcomes.items():
        for bar in outcome.bars:
            table.add_row(name, bar.what, bar.figure, bar.verdict)
    console.print(table)
