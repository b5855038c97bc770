"""`oomcast dataset`: networks drawn evenly over their features, labelled, in a file; and what is trained on them."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..errors import BadInput
from ..units import parse_bytes
from ._terminal import terminal

__all__ = ["add_to"]

_EXAMPLES = """examples:
  oomcast dataset build networks.parquet --rows 1000 --device a100-40gb
  oomcast dataset build cnn.csv --rows 300 --kinds cnn --architectures residual dense --device rtx-3090
  oomcast dataset build measured.parquet --rows 50 --labels runs --device cpu --most-memory 1GiB
  oomcast dataset show networks.parquet
  oomcast dataset train GPUMEMNET_FOLDER --output artifacts

exit codes: 0 done, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "dataset",
        help="build data sets of labelled networks, and train estimators",
        description="Draw networks evenly over their features, label each with what it holds, and learn from them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))
    _add_build(actions)
    _add_show(actions)
    _add_train(actions)


def _add_build(actions: Any) -> None:
    parser = actions.add_parser(
        "build",
        help="draw networks, label them, write a file",
        description="Draw networks, label them over all cores, write a file. Stopped, it goes on where it was.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="what to write: .parquet or .csv")
    parser.add_argument("--rows", type=int, default=1000, metavar="N", help="networks to draw (default: 1000)")
    parser.add_argument(
        "--device", default="a100-40gb", metavar="GPU", help="the target (default: a100-40gb), or cpu for runs"
    )
    parser.add_argument("--environment", metavar="NAME", help="software stack, like torch-2.8-cu128")
    parser.add_argument("--labels", default="simulator", metavar="SOURCE", help="simulator (default) or runs")
    parser.add_argument("--kinds", nargs="+", default=[], metavar="NAME", help="mlp, cnn, transformer (default: all)")
    parser.add_argument(
        "--architectures",
        nargs="+",
        default=[],
        metavar="NAME",
        help="pyramid, uniform, bottleneck, gradual, hourglass, residual, dense (default: all)",
    )
    parser.add_argument("--optimizer", default="adam", metavar="NAME", help="as in oomcast estimate (default: adam)")
    parser.add_argument("--precision", default="fp32", metavar="NAME", help="as in oomcast estimate (default: fp32)")
    parser.add_argument("--steps", type=int, default=2, metavar="N", help="training steps to follow (default: 2)")
    parser.add_argument(
        "--most-memory",
        type=parse_bytes,
        metavar="SIZE",
        help="the most that a network is expected to hold (default: 1.25 times the device's memory; on a cpu 2GiB)",
    )
    parser.add_argument(
        "--spread",
        default="both",
        metavar="WHAT",
        help="what is spread evenly: features, or both features and expected memory (default: both)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="another seed draws other networks (default: 0)"
    )
    parser.add_argument("--processes", type=int, metavar="N", help="networks at a time (default: one for each core)")
    parser.add_argument(
        "--time-limit", type=float, default=600.0, metavar="S", help="seconds for one real run (default: 600)"
    )
    parser.add_argument("--restart", action="store_true", help="throw away what was built before under this name")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_build)


def _add_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="how many rows a file has, and how evenly they are spread")
    parser.add_argument("file", metavar="FILE", type=Path, help="a data set, or one of GPUMemNet's CSV files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_show)


def _add_train(actions: Any) -> None:
    parser = actions.add_parser("train", help="train the learned estimators again from GPUMemNet's files")
    parser.add_argument("folder", metavar="DIR", type=Path, help="the folder with GPUMemNet's files")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="where artifacts and figures go")
    parser.add_argument(
        "--rows", type=int, default=250, metavar="N", help="captures of each file, families in turn (default: 250)"
    )
    parser.add_argument("--all-rows", action="store_true", help="capture every row")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="where traces are kept")
    parser.add_argument("--accept-stale", action="store_true", help="use traces that older code captured")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of splits and weights (default: 0)")
    parser.add_argument(
        "--processes",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="captures at a time (default: one for each core)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_train)


def _build(options: argparse.Namespace) -> int:
    from .. import dataset

    if options.spread not in ("features", "both"):
        raise BadInput(f"--spread is features or both, not {options.spread!r}.")
    settings = dataset.Settings.create(
        options.rows,
        device=options.device,
        environment=options.environment,
        labels=options.labels,
        kinds=options.kinds,
        architectures=options.architectures,
        optimizer=options.optimizer,
        precision=options.precision,
        steps=options.steps,
        most_bytes=options.most_memory,
        even_peaks=options.spread == "both",
        seed=options.seed,
    )
    with _progress() as tell:
        built = dataset.build_dataset(
            options.file,
            settings,
            processes=options.processes,
            restart=options.restart,
            seconds_per_run=options.time_limit,
            on_progress=tell,
        )
    _print(built, options, {"path": str(options.file)})
    if not options.json:
        print(f"{len(built.rows):,} rows in {options.file}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from .. import dataset

    _print(dataset.read_any(options.file), options, {"path": str(options.file)})
    return 0


def _print(found: Any, options: argparse.Namespace, told: dict[str, Any]) -> None:
    from .. import dataset

    if options.json:
        print(json.dumps({**told, "rows": len(found.rows), **found.metadata}, indent=2))
    else:
        terminal().print(dataset.render(found))


def _train(options: argparse.Namespace) -> int:
    from .. import dataset

    for name, value in (("rows", options.rows), ("processes", options.processes)):
        if value < 1:
            raise BadInput(f"--{name} must be at least 1, not {value}.")
    with _progress() as tell:
        report = dataset.train(
            options.folder,
            options.output,
            rows=None if options.all_rows else options.rows,
            cache=options.cache,
            seed=options.seed,
            processes=options.processes,
            accept_stale=options.accept_stale,
            on_progress=tell,
        )
    print(json.dumps(report.as_dict(), indent=2) if options.json else dataset.render_training(report))
    return 0


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """One bar for each thing that is done, on a terminal only."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield tell
