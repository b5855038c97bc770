"""`python -m lab bench frameworks`: live bytes of a training step, framework by framework, by oomcast and for real.

    python -m lab bench frameworks table [--framework NAME] [--python NAME=PATH] [--model NAME …] [--results FILE]
    python -m lab bench frameworks figure FILE.svg [--results FILE]
    python -m lab bench frameworks parts [--python NAME=PATH] [--results FILE] [--picture FILE.svg]
    python -m lab bench frameworks horus DIR

`table` makes DNNMem's table: each model × batch size is run by its framework on this machine's CPU, in a process of its
own (with --python, in an environment of its own), and compared with oomcast's figure for the same step; results are
kept in a file, so that an interrupted run goes on. `figure` draws the Gap of what is in that file. `parts` estimates
five of the models under PyTorch, TensorFlow and MXNet for a GPU, and draws the parts of each. `horus` rebuilds
`horus_fc_mnist.csv` of the folder DIR.
Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .report import Bar, Outcome, as_mib, console, print_outcome

_NAMES = ("tensorflow", "jax", "mxnet", "onnx")
FRAMEWORKS: Mapping[str, str] = {name: f"{__package__}.frameworks_{name}" for name in _NAMES}
"""Name → the module that has its `MODELS` and prints the figures of one, run with a model's name and a batch size."""

MOST_MEDIAN = 0.05
MOST_P90 = 0.12
LEAST_MODELS = 8
LEAST_BATCHES = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m lab bench frameworks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table")
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
    for framework in given.framework or FRAMEWORKS:
        rows = _measure(framework, interpreters.get(framework, sys.executable), given.model, given.results)
        outcome = judge(framework, rows)
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


def _measure(framework: str, python: str, models: Iterable[str] | None, results: Path) -> list[dict[str, Any]]:
    module = FRAMEWORKS[framework]
    listed: Mapping[str, tuple[Any, tuple[int, ...]]] = importlib.import_module(module).MODELS
    known = _read(results, framework)
    for name in models or listed:
        for batch_size in listed[name][1]:
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
    return [row for row in known.values() if models is None or row["model"] in models]


def _read(results: Path, framework: str) -> dict[tuple[str, int], dict[str, Any]]:
    if not results.exists():
        return {}
    rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    return {(row["model"], row["batch_size"]): row for row in rows if row["framework"] == framework}


def gap(row: Mapping[str, Any]) -> float:
    """(real − estimated) / real, TBEM's Gap as a share."""
    return float((row["measured"] - row["estimated"]) / row["measured"])


def judge(framework: str, rows: list[dict[str, Any]]) -> Outcome:
    """The bars of one framework."""
    errors = sorted(abs(gap(row)) for row in rows)
    by_model: dict[str, int] = {}
    for row in rows:
        by_model[row["model"]] = by_model.get(row["model"], 0) + 1
    complete = sum(count >= LEAST_BATCHES for count in by_model.values())
    median = statistics.median(errors) if errors else 1.0
    p90 = errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))] if errors else 1.0
    return Outcome(
        title=f"{framework}: live bytes of a training step",
        columns=("model", "batch", "real MiB", "oomcast MiB", "Gap"),
        rows=[
            (r["model"], str(r["batch_size"]), as_mib(r["measured"]), as_mib(r["estimated"]), f"{gap(r):+.2%}")
            for r in rows
        ],
        bars=(
            Bar(f"median error at most {MOST_MEDIAN:.0%}", f"{median:.2%}", median <= MOST_MEDIAN),
            Bar(f"p90 at most {MOST_P90:.0%}", f"{p90:.2%}", p90 <= MOST_P90),
            Bar(
                f"at least {LEAST_MODELS} models with {LEAST_BATCHES} batch sizes",
                str(complete),
                complete >= LEAST_MODELS,
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
