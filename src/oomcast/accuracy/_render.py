"""The benchmark for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..units import format_bytes
from ._cases import CaseSet
from ._metrics import Score
from ._worst import Bad

__all__ = ["as_json", "render"]

_COLUMNS = ("rows", "failed", "MRE", "p90", "under", "covered", "above high", "headroom", "runs", "OOMs", "s")


def render(sets: Sequence[CaseSet], scores: Sequence[Score], bad: Sequence[Bad]) -> Group:
    """One table, estimator by data set; then the worst rows, then what was left out."""
    table = Table("data", "estimator", *_COLUMNS, title="Estimates against measured runs, errors in %")
    before = ""
    for score in scores:
        if score.data != before and before:
            table.add_section()
        table.add_row(score.data if score.data != before else "", score.estimator, *_cells(score))
        before = score.data
    parts: list[Table | Text] = [table]
    if bad:
        parts.append(_worst_rows(bad))
    parts.extend(_left_out(one) for one in sets if one.skipped)
    return Group(*parts)


def as_json(sets: Sequence[CaseSet], scores: Sequence[Score], bad: Sequence[Bad]) -> dict[str, Any]:
    """Shares between 0 and 1, integers in bytes."""
    return {
        "scores": [asdict(score) for score in scores],
        "worst": [
            {
                "data": one.case.data,
                "row": one.case.row,
                "family": one.case.family,
                "truth": one.case.measured,
                "estimate": one.estimate,
                "error": round(one.error, 5),
                "why": one.why,
            }
            for one in bad
        ],
        "skipped": {one.name: dict(Counter(skip.reason for skip in one.skipped)) for one in sets},
    }


def _cells(score: Score) -> list[str]:
    shares = [score.mre, score.p90, score.under, score.covered, score.exceeded, score.headroom]
    return [
        str(score.rows),
        str(score.failed),
        *("" if share is None else f"{100 * share:.2f}" for share in shares),
        _calls(score.runs_right, score.runs),
        _calls(score.ooms_right, score.ooms),
        "" if score.seconds is None else f"{score.seconds:.2f}",
    ]


def _calls(right: float | None, count: int) -> str:
    return "" if right is None else f"{100 * right:.1f} of {count}"


def _worst_rows(bad: Sequence[Bad]) -> Table:
    table = Table("data", "row", "family", "measured", "estimate", "error", "a guess at why", title="The worst rows")
    for one in bad:
        measured = format_bytes(one.case.measured) if one.case.measured is not None else ""
        error = f"{100 * one.error:+.1f} %"
        table.add_row(
            one.case.data, one.case.row, one.case.family, measured, format_bytes(one.estimate), error, one.why
        )
    return table


def _left_out(one: CaseSet) -> Text:
    reasons = Counter(skip.reason for skip in one.skipped)
    shown = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(6))
    more = f"; {len(reasons) - 6} more reasons" if len(reasons) > 6 else ""
    return Text(f"{one.name}: {len(one.skipped)} rows left out: {shown}{more}")
