"""`oomcast dataset build|show|train`: labelled networks in a file, and estimators that learn from them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from ...units import parse_bytes
from ..command_parts import add_actions, needing, progress_bars

if TYPE_CHECKING:
    from .dataset import Dataset

__all__ = ["SUMMARY", "add_to"]

SUMMARY = "build data sets of labelled networks, and train the estimators that learn from them"
_EXAMPLES = """examples:
  oomcast dataset build networks.parquet --rows 1000 --device a100-40gb
  oomcast dataset build cnn.csv --rows 300 --kinds cnn --architectures residual dense --device rtx-3090
  oomcast dataset build measured.parquet --rows 50 --labels runs --device cpu --most-memory 1GiB
  oomcast dataset show networks.parquet
  oomcast dataset train networks.parquet --output mine.bin
  oomcast dataset train networks.parquet campaign.db --output mine.bin
  oomcast estimate job.py --batch-size 64 --device a100-40gb --estimator gpumemnet-mlp --artifact mine.bin

exit codes: 0 done, 2 bad input, 1 failure"""


def add_to(commands: Any) -> None:
    description = "Draw networks evenly over their features, and label each with what it holds."
    actions = add_actions(commands, "dataset", SUMMARY, description, _EXAMPLES)
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
    parser.add_argument(
        "--finish",
        action="store_true",
        help="end the unfinished build: write the rows that it has",
    )
    parser.add_argument("--restart", action="store_true", help="throw away what was built before under this name")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing("dataset", _build))


def _add_show(actions: Any) -> None:
    parser = actions.add_parser("show", help="how many rows a file has, and how evenly they are spread")
    parser.add_argument("file", metavar="FILE", type=Path, help="a data set that was built here")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing("dataset", _show))


def _add_train(actions: Any) -> None:
    parser = actions.add_parser(
        "train",
        help="learn from data sets, campaigns and calibrations",
        description="Learn GPUMemNet's two classifiers from rows of any kind, and from measured runs on a GPU the "
        "correction of the simulator too (estimator learned). Every score is of rows that were kept out.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="data sets (.parquet, .csv), stores of campaigns (.db, postgresql://…), calibrations (.json)",
    )
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="what to write, for oomcast estimate --artifact"
    )
    parser.add_argument("--device", metavar="NAME", help="only rows of this device")
    parser.add_argument(
        "--class-width",
        type=parse_bytes,
        nargs="+",
        metavar="SIZE",
        help="of the classes of memory; the first makes the estimate (default: 1000MiB for MLPs, 8000MiB for others)",
    )
    parser.add_argument("--folds", type=int, default=4, metavar="N", help="parts kept out in turn (default: 4)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of splits and weights (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=needing("campaign,dataset", _train))


def _build(options: argparse.Namespace) -> int:
    from . import dataset

    if options.finish:
        return _told(dataset.finish_dataset(options.file), options)
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
    with progress_bars() as tell:
        built = dataset.build_dataset(
            options.file,
            settings,
            processes=options.processes,
            restart=options.restart,
            seconds_per_run=options.time_limit,
            on_progress=tell,
        )
    return _told(built, options)


def _told(built: Dataset, options: argparse.Namespace) -> int:
    _print(built, options)
    if not options.json:
        print(f"{len(built.rows):,} rows in {options.file}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from . import dataset

    _print(dataset.read_dataset(options.file), options)
    return 0


def _train(options: argparse.Namespace) -> int:
    from .artifact import write_artifact
    from .training import read_learning_rows, render_training, train_estimators

    if options.output.is_dir() or not options.output.parent.is_dir():
        raise BadInput(f"cannot write {options.output}: name a file in a folder that is there.")
    widths = [width >> 20 for width in options.class_width or ()]
    if options.class_width and min(widths) < 1:
        raise BadInput("a class of memory must be at least 1MiB wide.")
    with progress_bars() as tell:
        rows, left_out = read_learning_rows(options.sources, device=options.device, on_progress=tell)
        training = train_estimators(
            rows, widths=widths or None, folds=options.folds, seed=options.seed, on_progress=tell
        )
    write_artifact(training.artifact, options.output)
    if options.json:
        print(json.dumps({"path": str(options.output), **training.as_dict(), "left_out": left_out}, indent=2))
        return 0
    print("\n".join([render_training(training), *left_out]))
    print(
        f"{len(rows):,} rows; wrote {options.output}; use it with: oomcast estimate … --estimator gpumemnet-mlp "
        f"--artifact {options.output}"
    )
    return 0


def _print(dataset: Dataset, options: argparse.Namespace) -> None:
    from ...cli.terminal import terminal
    from .dataset import render

    if options.json:
        print(json.dumps({"path": str(options.file), "rows": len(dataset.rows), **dataset.metadata}, indent=2))
    else:
        terminal().print(render(dataset))
