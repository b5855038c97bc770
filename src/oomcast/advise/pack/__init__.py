"""Jobs that share GPUs: where each may run with a bounded risk, and what a scheduler would have made of it."""

from __future__ import annotations

from .demand import Demand
from .job_list import GIVEN, JobEntry, JobList, read_jobs
from .packing import LeftOut, PackedCard, PackedJob, Packing, estimators_of, items_of, pack_jobs, timings_of
from .problem import Card, Item, Problem, parse_cards
from .schedule import POLICIES, Policy, Replayed, Timing, find_policies, replay

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
