"""What one case held when it ran for real."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from ..design import CaseSpec
from ..errors import BadInput
from ._environment import Environment

__all__ = ["Limits", "Measurement", "Outcome"]


class Outcome(str, Enum):
    """How the case ended. A figure reached before a failure is kept, as a lower bound."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASH = "crash"


@dataclass(frozen=True)
class Limits:
    """What one case may take before it is ended."""

    seconds: float = 600.0
    bytes: int | None = None
    """Resident host memory of the case and its children; `None` lets the engine share out the free memory."""

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise BadInput(f"the time limit of a case must be above 0 seconds, not {self.seconds!r}.")
        if self.bytes is not None and self.bytes < 1:
            raise BadInput(f"the memory limit of a case must be at least 1 byte, not {self.bytes!r}.")


@dataclass(frozen=True)
class Measurement:
    """One case, run once. On a CPU the peak is the resident memory of its process, on a GPU what the device shows."""

    case: CaseSpec
    outcome: Outcome
    peak_bytes: int
    """Exact where `outcome` is ok; else what was reached before the end."""
    seconds: float
    environment: Environment
    timeline: tuple[tuple[float, int], ...] = ()
    """Seconds since the start and bytes held, sampled. Its highest point may lie below the exact peak."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """Every figure that was read, by name, in bytes: `host_peak`, `cuda_peak_reserved`, `nvml_process` …"""
    message: str = ""
    """Why it failed, in a sentence."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "counters", MappingProxyType(dict(self.counters)))

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON data, the case by its key alone."""
        return {
            "key": self.case.key,
            "outcome": self.outcome.value,
            "peak_bytes": self.peak_bytes,
            "seconds": self.seconds,
            "environment": self.environment.as_dict(),
            "timeline": [list(point) for point in self.timeline],
            "counters": dict(self.counters),
            "message": self.message,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], case: CaseSpec) -> Measurement:
        return cls(
            case=case,
            outcome=Outcome(plain["outcome"]),
            peak_bytes=int(plain["peak_bytes"]),
            seconds=float(plain["seconds"]),
            environment=Environment.from_dict(plain["environment"]),
            timeline=tuple((float(at), int(held)) for at, held in plain["timeline"]),
            counters={str(name): int(value) for name, value in plain["counters"].items()},
            message=str(plain["message"]),
        )
