"""Several GPUs: the process stands for one rank; DDP, FSDP, ZeRO and tensor parallelism run as their own code does."""

from __future__ import annotations

from .pipeline import Pipeline
from .spreading import Spread
from .world import Membership, World, join_world

__all__ = ["Membership", "Pipeline", "Spread", "World", "join_world"]
