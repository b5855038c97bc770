"""From estimates to decisions: what fits, which GPU is enough, what to change."""

from ._fit import Check, CurvePoint, Fit, Floor, fit
from ._gpus import GpuChoice, GpuRanking, rank_gpus
from ._prices import Price, read_prices, shipped_prices
from ._remedies import Harm, Remedy
from ._what_to_change import Advice, Change, what_to_change

__all__ = [
    "Advice",
    "Change",
    "Check",
    "CurvePoint",
    "Fit",
    "Floor",
    "GpuChoice",
    "GpuRanking",
    "Harm",
    "Price",
    "Remedy",
    "fit",
    "rank_gpus",
    "read_prices",
    "shipped_prices",
    "what_to_change",
]
