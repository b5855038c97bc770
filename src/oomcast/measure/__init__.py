"""Running cases for real: each in a fresh process, its exact peak read, every result kept."""

from . import engines
from ._database import StoreUnavailable
from ._environment import Environment
from ._measure import STEADY_MALLOC, Conditions, measure_case
from ._measurement import Limits, Measurement, Outcome
from ._query import Selection
from ._run import Progress, run_campaign
from ._store import Status, Store

__all__ = [
    "STEADY_MALLOC",
    "Conditions",
    "Environment",
    "Limits",
    "Measurement",
    "Outcome",
    "Progress",
    "Selection",
    "Status",
    "Store",
    "StoreUnavailable",
    "engines",
    "measure_case",
    "run_campaign",
]
