"""The benchmark for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from oomcast.units import format_bytes

from .cases import CaseSet
from .metrics import Score
from .worst_rows import Bad

__all__ = ["Report", "as_json", "render"]

_COLUMNS = ("rows", "failed", "MRE", "p90", "under", "in interval", "above bound", "headroom", "fits right",
            "OOMs right", "s")  # fmt: skip
_NOTE = (
    "MRE: median |estimate − truth| / truth. under: estimates below the truth. above bound: truths above the one-sided "
    "upper bound; headroom: the mean of that bound over the truth. s: seconds for one estimate, its capture included."
)


@dataclass(frozen=True)
class Report:
    """All that a run of the benchmark has to say."""

    sets: tuple[CaseSet, ...]
    scores: tuple[Score, ...]
    campaigns: tuple[Score, ...]
    """Data sets of several campaigns, by campaign."""
    kinds: tuple[Score, ...]
    """Data sets of many kinds of models, by kind."""
    families: tuple[Score, ...]
    bad: tuple[Bad, ...]
    failed: tuple[tuple[str, str], ...] = ()
    """Of each case that has no answer: its data set, and why."""


def render(report: Report) -> Group:
    """One table, estimator by data set; then its parts, the worst rows, and what was left out."""
    parts: list[Table | Text] = [_scores("Estimates against measured runs, in %", "data", report.scores), Text(_NOTE)]
    for title, head, scores in (
        ("By campaign", "campaign", report.campaigns),
        ("By kind of model", "kind", report.kinds),
        ("By family", "family", report.families),
    ):
        if scores:
            parts.append(_scores(title, head, scores))
    if report.bad:
        parts.append(_worst_rows(report.bad))
    parts.extend(_left_out(data_set) for data_set in report.sets if data_set.skipped)
    parts.extend(
        Text(f"{data}: {count} × no answer: {reason}") for (data, reason), count in Counter(report.failed).most_common()
    )
    return Group(*parts)


def as_json(report: Report) -> dict[str, Any]:
    """Shares between 0 and 1, integers in bytes."""
    return {
        "scores": [asdict(score) for score in report.scores],
        "campaigns": [asdict(score) for score in report.campaigns],
        "kinds": [asdict(score) for score in report.kinds],
        "families": [asdict(score) for score in report.families],
        "worst": [
            {
                "data": answer.case.data,
                "row": answer.case.row,
                "family": answer.case.family,
                "truth": answer.case.measured,
                "estimate": answer.estimate,
                "error": round(answer.error, 5),
                "why": answer.why,
            }
            for answer in report.bad
        ],
        "failed": {
            name: dict(Counter(reason for data, reason in report.failed if data == name))
            for name in sorted({data for data, _ in report.failed})
        },
        "skipped": {data_set.name: dict(Counter(skip.reason for skip in data_set.skipped)) for data_set in report.sets},
    }


def _scores(title: str, head: str, scores: Sequence[Score]) -> Table:
    table = Table(head, "estimator", title=title)
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    before = ""
    one_each = len({score.estimator for score in scores}) == 1
    for score in scores:
        if score.data != before and before and not one_each:
            table.add_section()
        table.add_row(score.data if score.data != before else "", score.estimator, *_cells(score))
        before = score.data
    return table


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
    return "" if right is None else f"{round(right * count)}/{count}"


def _worst_rows(bad: Sequence[Bad]) -> Table:
    table = Table("data", "row", "family", "measured", "estimate", "error", "a guess at why", title="The worst rows")
    for answer in bad:
        measured = format_bytes(answer.case.measured) if answer.case.measured is not None else ""
        error = f"{100 * answer.error:+.1f} %"
        table.add_row(
            answer.case.data,
            answer.case.row,
            answer.case.family,
            measured,
            format_bytes(answer.estimate),
            error,
            answer.why,
        )
    return table


def _left_out(data_set: CaseSet) -> Text:
    reasons = Counter(skip.reason for skip in data_set.skipped)
    shown = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(6))
    more = f"; {len(reasons) - 6} more reasons" if len(reasons) > 6 else ""
    return Text(f"{data_set.name}: {len(data_set.skipped)} rows left out: {shown}{more}")
