"""`python -m lab bench frameworks`: live bytes of a training step, framework by framework, by oomcast and for real.

    python -m lab bench frameworks table [--further] [--framework NAME] [--python NAME=PATH] [--model NAME …]
                                         [--results FILE]
    python -m lab bench frameworks figure FILE.svg [--results FILE]
    python -m lab bench frameworks parts [--python NAME=PATH] [--results FILE] [--picture FILE.svg]
    python -m lab bench frameworks horus DIR

`table` makes DNNMem's table: each model × batch size is run by its framework on this machine's CPU, in a process of its
own (with --python, in an environment of its own), and compared with oomcast's figure for the same step; results are
kept in a file, so that an interrupted run goes on. With --further it is made of more models, which no rule was looked
at with, and held against stricter bars; ONNX' further models are those of `bench onnx_exports`. `figure` draws the Gap
of what is in that file. `parts` estimates five of the models under PyTorch, TensorFlow and MXNet for a GPU, and draws
the parts of each. `horus` rebuilds `horus_fc_mnist.csv` of the folder DIR.
Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomcast.estimation.interval import load_interval

from .frameworks_forms import Example
from .report import Bar, Outcome, as_mib, console, print_outcome

_NAMES = ("tensorflow", "jax", "mxnet", "onnx")
FRAMEWORKS: Mapping[str, str] = {name: f"{__package__}.frameworks_{name}" for name in _NAMES}
"""Name → the module that has its `MODELS` and prints the figures of one, run with a model's name and a batch size."""

FURTHER: Mapping[str, str] = {
    "tensorflow": f"{__package__}.further_keras",
    "jax": f"{__package__}.further_flax",
}
"""Name → the table of its further models."""

LEAST_BATCHES = 3


@dataclass(frozen=True)
class Bars:
    """What a framework's rows must hold."""

    median: float
    p90: float
    models: int
    within: float
    """Share of the rows whose true bytes lie in the interval around the estimate."""


KNOWN, UNKNOWN = Bars(0.05, 0.12, 8, 0.0), Bars(0.02, 0.08, 20, 0.93)
"""For DNNMem's models and their like, and for the further ones."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench frameworks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table")
    table.add_argument("--further", action="store_true", help="other models, of which none was looked at")
    table.add_argument("--framework", action="append", choices=tuple(FRAMEWORKS), help="(default: all)")
    table.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a framework's interpreter")
    table.add_argument("--model", action="append", help="only these (default: all)")
    table.add_argument("--results", type=Path, default=Path("frameworks.jsonl"), help="file of the results")
    figure = commands.add_parser("figure")
    figure.add_argument("svg", type=Path, help="the picture to write")
    figure.add_argument("--results", type=Path, default=Path("frameworks.jsonl"), help="file of the results")
    parts = commands.add_parser("parts")
    parts.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="a framework's interpreter")
    kept = Path(__file__).with_name("frameworks_parts.jsonl")
    parts.add_argument("--results", type=Path, default=kept, help="file of the results (default: the one that is here)")
    parts.add_argument("--picture", type=Path, metavar="FILE", help="an SVG to write")
    horus = commands.add_parser("horus")
    horus.add_argument("folder", type=Path, help="folder with horus_fc_mnist.csv")
    given = parser.parse_args()
    if given.command == "horus":
        from .horus import run

        outcome = run(given.folder)
        print_outcome(outcome)
        return 0 if outcome.holds else 1
    if given.command == "figure":
        from .frameworks_figure import draw

        given.svg.write_text(draw({name: list(_read(given.results, name).values()) for name in FRAMEWORKS}))
        return 0
    interpreters = dict(pair.split("=", 1) for pair in given.python)
    if given.command == "parts":
        return _parts(interpreters, given.results, given.picture)
    holds = True
    results: dict[str, list[dict[str, Any]]] = {}
    for framework in given.framework or (FURTHER if given.further else FRAMEWORKS):
        batches = _batches(framework, further=given.further)
        asked = {name: batches[name] for name in given.model or batches}
        rows = _measure(framework, interpreters.get(framework, sys.executable), asked, given.results)
        outcome = judge(framework, rows, UNKNOWN if given.further else KNOWN)
        print_outcome(outcome)
        holds = holds and outcome.holds
        results[framework] = rows
    console.print(markdown(results), markup=False, highlight=False, soft_wrap=True)
    return 0 if holds else 1


def _parts(interpreters: Mapping[str, str], results: Path, picture: Path | None) -> int:
    """Frameworks whose cells are all in the file are not asked again."""
    from . import frameworks_parts as table

    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    cells = [json.loads(line) for line in lines]
    for framework in table.FRAMEWORKS:
        if sum(one["framework"] == framework for one in cells) == sum(map(len, table.CELLS.values())):
            continue
        cells = [one for one in cells if one["framework"] != framework]
        command = [interpreters.get(framework, sys.executable), "-m", table.__name__, framework]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            console.print(f"{framework} failed: {ran.stderr.strip()[-400:]}", markup=False)
        cells += [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        results.write_text("\n".join(map(json.dumps, cells)) + "\n", encoding="utf-8")
    console.print(table.markdown(cells), markup=False, highlight=False, soft_wrap=True)
    if picture is not None:
        picture.write_text(table.draw(cells), encoding="utf-8")
    return 0 if len(cells) == len(table.FRAMEWORKS) * sum(map(len, table.CELLS.values())) else 1


def _batches(framework: str, *, further: bool) -> dict[str, tuple[int, ...]]:
    """Model → its batch sizes."""
    if not further:
        known: Mapping[str, tuple[Any, tuple[int, ...]]] = importlib.import_module(FRAMEWORKS[framework]).MODELS
        return {name: batches for name, (_, batches) in known.items()}
    if framework not in FURTHER:
        raise SystemExit(f"there are no further models for {framework}; choose among {', '.join(FURTHER)}.")
    examples: Mapping[str, Example] = importlib.import_module(FURTHER[framework]).MODELS
    return {name: example.batches for name, example in examples.items()}


def _measure(framework: str, python: str, asked: Mapping[str, tuple[int, ...]], results: Path) -> list[dict[str, Any]]:
    module = FRAMEWORKS[framework]
    known = _read(results, framework)
    for name, batches in asked.items():
        for batch_size in batches:
            if (name, batch_size) in known:
                continue
            ran = subprocess.run(
                [python, "-m", module, name, str(batch_size)], capture_output=True, text=True, check=False
            )
            if ran.returncode:
                console.print(f"{framework} {name} {batch_size} failed: {ran.stderr.strip()[-300:]}", markup=False)
                continue
            row = {"framework": framework, **json.loads(ran.stdout.strip().splitlines()[-1])}
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            known[name, batch_size] = row
    return [row for row in known.values() if row["model"] in asked]


def _read(results: Path, framework: str) -> dict[tuple[str, int], dict[str, Any]]:
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {(row["model"], row["batch_size"]): row for row in rows if row["framework"] == framework}


def gap(row: Mapping[str, Any]) -> float:
    """(real − estimated) / real, TBEM's Gap as a share."""
    return float((row["measured"] - row["estimated"]) / row["measured"])


def is_within(row: Mapping[str, Any]) -> bool:
    """Whether the interval of such an estimate holds the truth.

    Around jobs of these frameworks it goes from the least to the most that the measured runs' ratios make of all
    tensors (`Simulation.total_if`); here are tensors alone, so that the ratio itself is judged.
    """
    least, most, _ = load_interval().ratios()
    return least <= row["measured"] / row["estimated"] <= most


def judge(framework: str, rows: list[dict[str, Any]], bars: Bars) -> Outcome:
    """The bars of one framework."""
    errors = sorted(abs(gap(row)) for row in rows)
    by_model: dict[str, int] = {}
    for row in rows:
        by_model[row["model"]] = by_model.get(row["model"], 0) + 1
    complete = sum(count >= LEAST_BATCHES for count in by_model.values())
    median = statistics.median(errors) if errors else 1.0
    p90 = errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))] if errors else 1.0
    within = sum(map(is_within, rows)) / max(len(rows), 1)
    return Outcome(
        title=f"{framework}: live bytes of a training step",
        columns=("model", "batch", "real MiB", "oomcast MiB", "Gap"),
        rows=[
            (r["model"], str(r["batch_size"]), as_mib(r["measured"]), as_mib(r["estimated"]), f"{gap(r):+.2%}")
            for r in rows
        ],
        bars=(
            Bar(f"median error at most {bars.median:.0%}", f"{median:.2%}", median <= bars.median),
            Bar(f"p90 at most {bars.p90:.0%}", f"{p90:.2%}", p90 <= bars.p90),
            Bar(f"within the interval at least {bars.within:.0%}", f"{within:.1%}", within >= bars.within),
            Bar(
                f"at least {bars.models} models with {LEAST_BATCHES} batch sizes",
                str(complete),
                complete >= bars.models,
            ),
        ),
    )


def markdown(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """All frameworks in one table, as in docs/frameworks.md: a line per model and framework, batches side by side."""
    lines = [
        "| model | framework | batch | real, MiB | oomcast, MiB | Gap, % |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for model in dict.fromkeys(row["model"] for rows in results.values() for row in rows):
        for framework, rows in results.items():
            found = sorted((row for row in rows if row["model"] == model), key=lambda row: row["batch_size"])
            if found:
                columns = (
                    [str(row["batch_size"]) for row in found],
                    [f"{row['measured'] / 2**20:,.0f}" for row in found],
                    [f"{row['estimated'] / 2**20:,.0f}" for row in found],
                    [f"{100 * gap(row):+.1f}" for row in found],
                )
                lines.append(f"| {model} | {framework} | " + " | ".join(" / ".join(cells) for cells in columns) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
