"""From estimates to decisions: what fits, which GPU is enough, what to change."""

from __future__ import annotations

from .changes import Advice, Change, what_to_change
from .gpus import GpuChoice, GpuRanking, Price, rank_gpus, read_prices, shipped_prices
from .largest import Check, CurvePoint, Fit, Floor, fit
from .planning import Candidate, Plan, PlannedLayout, plan
from .remedies import Harm, Remedy

__all__ = [
    "Advice",
    "Candidate",
    "Change",
    "Check",
    "CurvePoint",
    "Fit",
    "Floor",
    "GpuChoice",
    "GpuRanking",
    "Harm",
    "Plan",
    "PlannedLayout",
    "Price",
    "Remedy",
    "fit",
    "plan",
    "rank_gpus",
    "read_prices",
    "shipped_prices",
    "what_to_change",
]
