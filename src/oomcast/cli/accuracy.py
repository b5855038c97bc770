"""`oomcast accuracy`: how right the estimates were on measured runs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..estimation.accuracy import Calls, RecordedAccuracy

__all__ = ["add_to"]

_NOTES = (
    "median off: half of the runs were nearer than this to the measured memory; 9 of 10 within: nine of ten runs were. "
    "above the bound: runs that held more than will_not_exceed, which promises 5 % at most.",
    "kept aside: nobody who made the rules saw these runs; seen: rules were chosen by looking at them, none fitted.",
)


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "accuracy",
        help="how right the estimates were on measured runs",
        description="Show how far the estimates were from memory that was measured on real GPUs.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON; shares are between 0 and 1")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..estimation.accuracy import accuracy_to_json, recorded_accuracy
    from .terminal import terminal

    recorded = recorded_accuracy()
    if options.json:
        print(json.dumps(accuracy_to_json(recorded), indent=2))
        return 0
    console = terminal()
    console.print(_table(recorded))
    for note in _NOTES:
        console.print(note)
    return 0


def _table(recorded: tuple[RecordedAccuracy, ...]) -> Any:
    from rich.table import Table

    table = Table("what ran", "GPU", title="Estimates against measured memory")
    for column in ("runs", "median off", "9 of 10 within", "above the bound", "fits right", "OOMs right"):
        table.add_column(column, justify="right")
    table.add_column("runs were")
    table.add_column("oomcast")
    for judged in recorded:
        table.add_row(
            judged.what,
            judged.gpu,
            "–" if judged.runs is None else str(judged.runs),
            *(_percent(share) for share in (judged.median_error, judged.p90_error, judged.exceeded)),
            _calls(judged.fits),
            _calls(judged.ooms),
            "kept aside" if judged.kept_aside else "seen",
            f"{judged.version}, {judged.date}",
        )
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.3g} %"


def _calls(calls: Calls | None) -> str:
    return "–" if calls is None else f"{calls.right} of {calls.of}"
