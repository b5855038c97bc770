"""From estimates to decisions: what fits, which GPU is enough, what to change."""

from __future__ import annotations

from .changes import Advice, Change, what_to_change
from .gpus import GpuChoice, GpuRanking, Price, rank_gpus, read_prices, shipped_prices
from .largest import Check, CurvePoint, Fit, Floor, fit
from .planning import Candidate, Plan, PlannedLayout, plan
from .remedies import Harm, Remedy
from .sweeps import Cell, Map, Sweep, SweepPoint, memory_map, sweep

__all__ = [
    "Advice",
    "Candidate",
    "Cell",
    "Change",
    "Check",
    "CurvePoint",
    "Fit",
    "Floor",
    "GpuChoice",
    "GpuRanking",
    "Harm",
    "Map",
    "Plan",
    "PlannedLayout",
    "Price",
    "Remedy",
    "Sweep",
    "SweepPoint",
    "fit",
    "memory_map",
    "plan",
    "rank_gpus",
    "read_prices",
    "shipped_prices",
    "sweep",
    "what_to_change",
]
