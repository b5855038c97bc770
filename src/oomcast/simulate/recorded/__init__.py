"""Recordings of torch's real allocator: read safely, and replayed through the simulated one."""

from __future__ import annotations

from .replaying import Divergence, ReplayResult, replay
from .snapshot import Frame, RecordedEvent, Snapshot, read_snapshot

__all__ = ["Divergence", "Frame", "RecordedEvent", "ReplayResult", "Snapshot", "read_snapshot", "replay"]
