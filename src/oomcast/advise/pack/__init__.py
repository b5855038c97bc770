"""Jobs that share GPUs: where each may run with a bounded risk, and what a scheduler would have made of it."""

from __future__ import annotations

from ._cards import Card, parse_cards
from ._demand import Demand
from ._estimating import items_of
from ._jobs import GIVEN, JobEntry, JobList, read_jobs
from ._pack import LeftOut, PackedCard, PackedJob, Packing, pack_jobs
from ._policies import POLICIES, Policy, find_policies
from ._problem import Item, Problem
from ._replay import Replayed, Timing, replay
from ._timings import estimators_of, timings_of

__all__ = [
    "GIVEN",
    "POLICIES",
    "Card",
    "Demand",
    "Item",
    "JobEntry",
    "JobList",
    "LeftOut",
    "PackedCard",
    "PackedJob",
    "Packing",
    "Policy",
    "Problem",
    "Replayed",
    "Timing",
    "estimators_of",
    "find_policies",
    "items_of",
    "pack_jobs",
    "parse_cards",
    "read_jobs",
    "replay",
    "timings_of",
]
