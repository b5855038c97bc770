"""What to test: orthogonal arrays, plans, templates, the specification that filters them, campaigns."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._cases import CaseSpec, Role, case_key
from ._factors import Case, Factor, Value
from ._template import Parameter, Template, complete

if TYPE_CHECKING:
    from ._campaign import Campaign, CampaignLimits, read_campaign
    from ._campaign_plan import (
        CampaignPlan,
        RejectedCase,
        campaign_cases,
        case_spec,
        next_campaign_case,
        plan_campaign,
    )
    from ._effects import Effect, main_effects
    from ._encode import encode
    from ._plans import METHODS, Cost, Method, Plan, make_plan, next_case
    from ._starter import starter_campaign

__all__ = [
    "METHODS",
    "Campaign",
    "CampaignLimits",
    "CampaignPlan",
    "Case",
    "CaseSpec",
    "Cost",
    "Effect",
    "Factor",
    "Method",
    "Parameter",
    "Plan",
    "RejectedCase",
    "Role",
    "Template",
    "Value",
    "campaign_cases",
    "case_key",
    "case_spec",
    "complete",
    "encode",
    "main_effects",
    "make_plan",
    "next_campaign_case",
    "next_case",
    "plan_campaign",
    "read_campaign",
    "starter_campaign",
]

_HOMES = {
    "_campaign": ("Campaign", "CampaignLimits", "read_campaign"),
    "_campaign_plan": (
        "CampaignPlan",
        "RejectedCase",
        "campaign_cases",
        "case_spec",
        "next_campaign_case",
        "plan_campaign",
    ),
    "_effects": ("Effect", "main_effects"),
    "_encode": ("encode",),
    "_plans": ("METHODS", "Cost", "Method", "Plan", "make_plan", "next_case"),
    "_starter": ("starter_campaign",),
}


def __getattr__(name: str) -> Any:
    # A machine that only measures cases needs their type, not what makes them (numpy, lark).
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
