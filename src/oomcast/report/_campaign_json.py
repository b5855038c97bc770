"""Campaigns for programs: integers in bytes, shares from 0 to 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..design import Campaign, CampaignPlan, Cost
    from ..estimate import Gap, GapRow, ScreenedFactors
    from ..measure import Measurement, Status

__all__ = ["campaign_plan_as_json", "campaign_status_as_json", "gap_as_json"]


def campaign_plan_as_json(plan: CampaignPlan, cost: Cost, screened: ScreenedFactors | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "campaign": plan.campaign.name,
        "method": plan.campaign.method,
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
