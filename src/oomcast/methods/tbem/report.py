"""Campaigns for people: plans, progress and fitted Gaps as text and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...units import format_bytes
from .analysis import Outlier, gap_line, outliers

if TYPE_CHECKING:
    from ..measure import Measurement, Progress, Status
    from .campaign import ScreenedFactors
    from .campaign_file import Campaign
    from .campaign_plan import CampaignPlan
    from .factors import Factor
    from .gap import Gap, GapRow, Mape
    from .plans import Cost

__all__ = [
    "campaign_plan_as_json",
    "campaign_progress_words",
    "campaign_status_as_json",
    "duration",
    "efficiency_as_json",
    "gap_as_json",
    "percent",
    "render_campaign_plan",
    "render_campaign_status",
    "render_efficiency",
    "render_gap",
    "render_screening",
]

# For programs: integers are bytes, shares go from 0 to 1.


def campaign_plan_as_json(plan: CampaignPlan, cost: Cost, screened: ScreenedFactors | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "campaign": plan.campaign.name,
        "method": plan.campaign.method,
        "array": plan.plan.array.notation if plan.plan.array is not None else None,
        "balance": dataclasses.asdict(plan.balance) if plan.balance is not None else None,
        "runs": cost.runs,
        "combinations": cost.combinations,
        "seconds": cost.seconds,
        "cases": [
            {"key": case.key, "role": case.role, "repetition": case.repetition, "parameters": dict(case.parameters)}
            for case in plan.cases
        ],
        "rejected": [
            {
                "role": one.role,
                "parameters": dict(one.parameters),
                "process": one.process,
                "condition": one.condition,
            }
            for one in plan.rejected
        ],
    }
    if screened is not None:
        plain["screening"] = [
            {"factor": effect.factor, "share": effect.share, "means": [list(mean) for mean in effect.means]}
            for effect in screened.effects
        ]
    return plain


def campaign_status_as_json(campaign: Campaign, status: Status, failed: Sequence[Measurement]) -> dict[str, Any]:
    return {
        "campaign": campaign.name,
        "total": status.total,
        "open": status.open,
        "running": status.claimed,
        "outcomes": {outcome.value: count for outcome, count in status.outcomes.items()},
        "failed": [
            {
                "key": one.case.key,
                "outcome": one.outcome.value,
                "parameters": dict(one.case.parameters),
                "reached": one.peak_bytes,
                "message": one.message,
            }
            for one in failed
        ],
    }


def gap_as_json(gap: Gap) -> dict[str, Any]:
    return {
        "campaign": gap.campaign,
        "framework": gap.framework,
        "environment": dict(gap.environment),
        "features": gap.features,
        "gap": gap.model.equation(6),
        "direct": gap.direct.equation(6),
        "fitted": _mape(gap, gap.runs),
        "others": _mape(gap, gap.checks) if gap.checks else None,
    }


def _mape(gap: Gap, rows: Sequence[GapRow]) -> dict[str, Any]:
    mape = gap.mape(rows)
    return {
        "cases": mape.cases,
        "static": mape.static,
        "direct": mape.direct,
        "gap": mape.gap,
        "gap_by_features": {name: None if math.isnan(e) else e for name, e in mape.by_features.items()},
    }


_BAR = 40
_MOST_REJECTED = 10


def render_campaign_plan(plan: CampaignPlan, cost: Cost) -> RenderableType:
    """The array, its cost, and what the specification does not let through."""
    campaign = plan.campaign
    parts: list[RenderableType] = [
        Text(f"{campaign.name}: {campaign.template} under {campaign.framework} on {campaign.device}", style="bold"),
        _factors(campaign.all_factors),
        Text(_cost_in_words(plan, cost)),
    ]
    if plan.balance is not None:
        parts.append(Text(f"{plan.balance}.", style="yellow"))
    for rejected in plan.rejected[:_MOST_REJECTED]:
        parts.append(Text(f"rejected ({rejected.role}) {rejected}", style="yellow"))
    if len(plan.rejected) > _MOST_REJECTED:
        parts.append(Text(f"and {len(plan.rejected) - _MOST_REJECTED} more rejected", style="yellow"))
    return Group(*parts)


def _factors(factors: Sequence[Factor]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("Factor")
    table.add_column("Levels", overflow="fold")
    for factor in factors:
        table.add_row(factor.name, ", ".join(map(str, factor.levels)))
    return table


def _cost_in_words(plan: CampaignPlan, cost: Cost) -> str:
    campaign, array = plan.campaign, plan.plan.array
    if array is not None:
        how = f"orthogonal array {array.notation}"
    else:
        how = f"{campaign.method} plan"
    checks = sum(case.role == "held_out" and case.repetition == 0 for case in plan.cases)
    words = f"{how}, instead of {cost.combinations} combinations; {checks} other configurations to check; "
    words += f"{cost.repetitions} × {cost.cases} = {cost.runs} runs"
    if cost.seconds is not None:
        return f"{words}, about {duration(cost.seconds)} one after the other"
    return f"{words}, at most {duration(cost.runs * campaign.limits.seconds)} by the limit of each"


def render_screening(screened: ScreenedFactors) -> RenderableType:
    """Bars: the share of the static estimate's variance that each factor explains."""
    table = Table(box=None, pad_edge=False, title="Effect on the static estimate", title_justify="left")
    for column in ("Factor", "Share", "", "From", "To"):
        table.add_column(column, justify="left" if column in ("Factor", "") else "right")
    for effect in screened.effects:
        means = [mean for _, mean in effect.means]
        low, high = (format_bytes(round(value)) for value in (min(means), max(means)))
        table.add_row(effect.factor, percent(effect.share), "█" * round(_BAR * effect.share), low, high)
    return table


def render_campaign_status(campaign: Campaign, status: Status, failed: Sequence[Measurement]) -> RenderableType:
    line = f"{campaign.name}: {status.done} of {status.total} done, {status.claimed} running, {status.open} open"
    outcomes = ", ".join(f"{count} {outcome.value}" for outcome, count in status.outcomes.items())
    parts = [Text(line, style="bold"), *([Text(outcomes)] if outcomes else [])]
    names = [factor.name for factor in campaign.all_factors]
    for one in failed:
        settings = " ".join(f"{name}={one.case.parameters.get(name)}" for name in names)
        reached = format_bytes(one.peak_bytes)
        parts.append(Text(f"{one.outcome.value}: {settings}: {one.message} Reached {reached}.", style="yellow"))
    return Group(*parts)


def render_gap(gap: Gap) -> RenderableType:
    """How good the fit is where it was made and where it was not, and the equations."""
    environment = gap.environment
    table = Table(box=None, pad_edge=False)
    for column in ("Mean absolute error on", "Cases", "SGV alone", "GV polynomial", "SGV + Gap"):
        table.add_column(column, justify="left" if column.startswith("Mean") else "right")
    table.add_row("the runs it was fitted to", *_errors(gap.mape(gap.runs)))
    if gap.checks:
        table.add_row("other configurations", *_errors(gap.mape(gap.checks)), style="bold")
    equation = gap.model.equation()
    return Group(
        Text(f"{gap.campaign}: {gap.framework} {environment.get('version', '')} on {gap.device}", style="bold"),
        table,
        Text(f"Gap = {equation} bytes", overflow="fold"),
        Text(f"GV = {gap.direct.equation()} bytes", overflow="fold", style="dim"),
        Text(
            f"The Gap is a function of {_WORDS[gap.features]}; error on rows kept out: "
            + ", ".join(f"{name} {percent(model.cv_error_)}" for name, model in gap.models.items()),
            style="dim",
        ),
        *(Text(_outlier(far), style="yellow") for far in outliers(gap)),
    )


def _outlier(far: Outlier) -> str:
    settings = " ".join(f"{name}={value}" for name, value in far.row.parameters.items())
    return f"stands out: {settings}: {far.ratio:.3f} times what the other runs let expect"


def render_efficiency(gaps: Sequence[Gap]) -> RenderableType:
    """The Gap by framework and version: a constant and a slope over SGV, each with its interval."""
    table = Table(box=None, pad_edge=False, title="Gap by framework and version, with 95 % intervals")
    for column in ("Campaign", "Framework", "Runs", "Mean Gap", "Constant", "For each byte of SGV", "Outliers"):
        table.add_column(column, justify="left" if column in ("Campaign", "Framework") else "right")
    for gap in gaps:
        plain = efficiency_as_json(gap)
        constant, slope = plain["constant"], plain["slope"]
        sizes = [format_bytes(max(constant[key], 0)) for key in ("value", "low", "high")]
        table.add_row(
            gap.campaign,
            f"{gap.framework} {gap.environment.get('version', '')}",
            str(len(gap.rows)),
            format_bytes(max(plain["mean_gap"], 0)),
            f"{sizes[0]} ({sizes[1]} to {sizes[2]})",
            f"{slope['value']:+.3f} ({slope['low']:+.3f} to {slope['high']:+.3f})",
            str(len(plain["outliers"])),
        )
    return table


def efficiency_as_json(gap: Gap) -> dict[str, Any]:
    line = gap_line(gap)
    return {
        "campaign": gap.campaign,
        "framework": gap.framework,
        "version": gap.environment.get("version", ""),
        "device": gap.device,
        "runs": len(gap.rows),
        "mean_gap": round(sum(row.gap for row in gap.rows) / len(gap.rows)),
        "constant": {name: round(value) for name, value in dataclasses.asdict(line.constant).items()},
        "slope": dataclasses.asdict(line.slope),
        "left": line.left,
        "outliers": [{"parameters": dict(far.row.parameters), "ratio": far.ratio} for far in outliers(gap)],
    }


_WORDS = {
    "static": "the trace's figures (SGV, parameters, largest tensor)",
    "factors": "the campaign's factors",
    "both": "the campaign's factors and the trace's figures",
    "bayesian": "the mean of all short polynomials of the campaign's factors and the trace's figures",
}


def campaign_progress_words(progress: Progress) -> str:
    """Beside the bar: failures, waiting, and when it will be done."""
    words = []
    if progress.failed:
        words.append(f"{progress.failed} failed")
    if progress.waiting:
        words.append("waiting for memory or a device")
    if progress.eta_seconds is not None:
        words.append(f"{duration(progress.eta_seconds)} left")
    return ", ".join(words)


def percent(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _errors(mape: Mape) -> list[str]:
    return [str(mape.cases), percent(mape.static), percent(mape.direct), percent(mape.gap)]
