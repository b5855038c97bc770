"""What a campaign asks of the place where its cases run."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ...design import CaseSpec
from .._measure import Conditions
from .._measurement import Measurement

__all__ = ["Engine", "Session"]


class Session(Protocol):
    """Cases under way. Used by one thread."""

    def has_room(self, device: str) -> bool:
        """Whether one more case for `device` may start now."""

    def submit(self, case: CaseSpec, marker: str) -> None:
        """Start a case."""

    def collect(self, timeout: float) -> list[Measurement]:
        """Cases that have ended; waits at most `timeout` seconds for one. Raises what kept a case from running."""


class Engine(Protocol):
    """Opens sessions; leaving one ends whatever still runs in it."""

    def start(self, conditions: Conditions) -> AbstractContextManager[Session]: ...
