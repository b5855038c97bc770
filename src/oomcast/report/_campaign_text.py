"""Campaigns in the terminal: what will run, how far it is, what was learnt."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..units import format_bytes

if TYPE_CHECKING:
    from ..design import Campaign, CampaignPlan, Cost, Factor
    from ..estimate import Gap, Mape, ScreenedFactors
    from ..measure import Measurement, Progress, Status

__all__ = [
    "campaign_progress_words",
    "duration",
    "percent",
    "render_campaign_plan",
    "render_campaign_status",
    "render_gap",
    "render_screening",
]

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
        levels = " ".join(f"{many}^{array.levels.count(many)}" for many in sorted(set(array.levels), reverse=True))
        how = f"orthogonal array of {len(array.rows)} runs, {levels}, strength {array.strength}"
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
    told = gap.environment
    table = Table(box=None, pad_edge=False)
    for column in ("Mean absolute error on", "Cases", "SGV alone", "GV polynomial", "SGV + Gap"):
        table.add_column(column, justify="left" if column.startswith("Mean") else "right")
    table.add_row("the runs it was fitted to", *_errors(gap.mape(gap.runs)))
    if gap.checks:
        table.add_row("other configurations", *_errors(gap.mape(gap.checks)), style="bold")
    equation = gap.model.equation()
    return Group(
        Text(f"{gap.campaign}: {gap.framework} {told.get('version', '')} on {gap.device}", style="bold"),
        table,
        Text(f"Gap = {equation} bytes", overflow="fold"),
        Text(f"GV = {gap.direct.equation()} bytes", overflow="fold", style="dim"),
        Text(
            f"The Gap is a function of {_WORDS[gap.features]}; error on rows kept out: "
            + ", ".join(f"{name} {percent(model.cv_error_)}" for name, model in gap.models.items()),
            style="dim",
        ),
    )


_WORDS = {
    "static": "the trace's figures (SGV, parameters, largest tensor)",
    "factors": "the campaign's factors",
    "both": "the campaign's factors and the trace's figures",
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
