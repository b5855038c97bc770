"""`oomcast calibrate JOB`: one real run of an environment makes every later estimate for it better."""

from __future__ import annotations

import argparse
from typing import Any

from ..errors import BadInput, OomcastError, UnknownName
from .job_options import add_job_options
from .measured_options import add_measured_options, measured_options, options_of_run
from .terminal import print_json, print_line, terminal, working

__all__ = ["add_to"]

_ALL = "all"
_EXAMPLES = """examples:
  oomcast calibrate job.py --batch-size 32 --device a100-40gb --environment torch-2.8-cu128 --nvidia-smi 21345MiB
  oomcast calibrate zoo:resnet50 --batch-size 64 --device rtx-3090 --environment torch-2.6 --snapshot snapshot.pickle
  oomcast calibrate zoo:resnet50 --batch-size 64 --device rtx-3090 --run
  oomcast calibrate --list"""


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "calibrate",
        help="learn from one real run what an environment adds on a GPU",
        description="Compare one real run of a job with its estimate. What the environment adds on that GPU is kept, "
        "and used by every later estimate for both.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_job_options(parser, required=False, without=("calibration", "use_calibration"))
    add_measured_options(parser)
    kept = parser.add_argument_group("what is kept")
    kept.add_argument("--output", metavar="FILE", help="keep it in this file, to share it by estimate --calibration")
    kept.add_argument("--list", action="store_true", help="list the calibrations that are kept")
    kept.add_argument("--show", nargs="?", const=_ALL, metavar="NAME", help="show one, or all, with the runs")
    kept.add_argument("--remove", metavar="NAME", help="remove one (GPU@ENVIRONMENT), or all of a GPU or environment")
    kept.add_argument("--undo", metavar="NAME", help="take back the newest run of one (GPU@ENVIRONMENT)")
    parser.add_argument("--json", action="store_true", help="print JSON, integers in bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    asked = [name for name in ("list", "show", "remove", "undo") if getattr(options, name)]
    if len(asked) > 1 or (asked and options.job):
        raise BadInput("--list, --show, --remove and --undo stand alone: one of them, without a job.")
    if options.list:
        return _list(options.json)
    if options.show:
        return _show(options.show, options.json)
    if options.remove:
        return _remove(options.remove)
    if options.undo:
        return _undo(options.undo)
    return _calibrate(options, options_of_run(options, "a calibration", "oomcast calibrate"))


def _calibrate(options: argparse.Namespace, wanted: dict[str, Any]) -> int:
    from ..estimation import calibrate
    from ..report import calibration_change_as_json, render_calibration_change

    with working(f"Comparing {options.job} with its estimate on a virtual {options.device} …"):
        change = calibrate(options.job, **measured_options(options), output=options.output, **wanted)
    if options.json:
        print_json(calibration_change_as_json(change))
    else:
        terminal().print(render_calibration_change(change))
    return 0


def _remove(name: str) -> int:
    from ..estimation import remove_calibrations

    for path in remove_calibrations(name):
        print_line(f"removed {path}")
    return 0


def _undo(name: str) -> int:
    from ..estimation import undo_calibration

    path, kept = undo_calibration(name)
    left = "no run is left, so it was removed" if kept is None else f"runs left: {len(kept.runs)}"
    print_line(f"took back the newest run of {path.stem}; {left}")
    return 0


def _list(as_json: bool) -> int:
    from ..estimation import kept_calibrations
    from ..report import calibration_as_json, render_calibrations

    kept = kept_calibrations()
    if as_json:
        listed = [
            {"name": path.stem, "path": str(path), "error": str(found)}
            if isinstance(found, OomcastError)
            else {**calibration_as_json(found), "path": str(path)}
            for path, found in kept
        ]
        print_json(listed)
    else:
        terminal().print(render_calibrations(kept))
    return 0


def _show(name: str, as_json: bool) -> int:
    from ..estimation import kept_calibrations
    from ..report import calibration_as_json, render_calibration

    kept = kept_calibrations()
    wanted = [(path, found) for path, found in kept if name.strip() in (_ALL, path.stem)]
    if not wanted and name != _ALL:
        raise UnknownName("calibration", name, [path.stem for path, _ in kept], "`oomcast calibrate --list` shows all.")
    whole = []
    for _, found in wanted:
        if isinstance(found, OomcastError):
            raise found
        whole.append(found)
    if as_json:
        print_json([calibration_as_json(calibration) for calibration in whole])
    else:
        for calibration in whole:
            terminal().print(render_calibration(calibration))
    return 0
