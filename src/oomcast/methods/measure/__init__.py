"""Running cases for real: each in a fresh process, its exact peak read, every result kept.

Why a room of its own: a method that learns from real runs is only as good as its figures. A case runs in a process that
nothing else has touched (`watch`), its peak is read from the kernel or the GPU's driver (`processes`, `gpu`), with all
that can change the figure written down beside it (`environment`); the result goes into a database at once (`store`), so
that a campaign that is killed goes on where it was, on one machine or on many (`engines`). What is run, and what is
learnt from it, is for the methods above: this room knows neither templates nor estimates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from ...database import StoreUnavailable
    from . import engines as engines
    from .campaign_run import Progress, run_campaign
    from .case_run import STEADY_MALLOC, Conditions, measure_case
    from .environment import Environment, check_framework, facts_of
    from .measurement import CaseSpec, Limits, Measurement, Outcome, Role, Value, case_key
    from .query import Selection
    from .store import Status, Store

__all__ = [
    "STEADY_MALLOC",
    "CaseSpec",
    "Conditions",
    "Environment",
    "Limits",
    "Measurement",
    "Outcome",
    "Progress",
    "Role",
    "Selection",
    "Status",
    "Store",
    "StoreUnavailable",
    "Value",
    "case_key",
    "check_framework",
    "facts_of",
    "measure_case",
    "run_campaign",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".campaign_run": ("Progress", "run_campaign"),
        ".case_run": ("STEADY_MALLOC", "Conditions", "measure_case"),
        "...database": ("StoreUnavailable",),
        ".environment": ("Environment", "check_framework", "facts_of"),
        ".measurement": ("CaseSpec", "Limits", "Measurement", "Outcome", "Role", "Value", "case_key"),
        ".query": ("Selection",),
        ".store": ("Status", "Store"),
    },
    extra="campaign",
)
