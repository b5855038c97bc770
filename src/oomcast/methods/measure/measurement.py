"""A case of a campaign, and what it held when it ran for real.

`CaseSpec` is everything that decides one run, with the file that will run; `Measurement` is what became of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from ...errors import BadInput
from .environment import Environment

__all__ = ["CaseSpec", "Limits", "Measurement", "Outcome", "Role", "TimelineSampler", "Value", "case_key"]

Value: TypeAlias = int | float | str | bool
"""What a parameter of a template may be."""
Role = Literal["array", "held_out", "adaptive"]


@dataclass(frozen=True)
class CaseSpec:
    """A case of a campaign. Two cases with one key are the same run: measured once, never twice."""

    key: str
    campaign: str
    role: Role
    """Why the case is there: from the plan's array, kept aside for checking, or chosen after others had run."""
    template: str
    parameters: Mapping[str, Value] = field(hash=False)
    """All parameters of the template, those that the campaign does not vary too."""
    framework: str
    device: str
    repetition: int
    steps: int
    source: str
    """The rendered Python file."""


def case_key(
    template: str,
    parameters: Mapping[str, Value],
    framework: str,
    device: str,
    repetition: int,
    steps: int,
    source: str,
) -> str:
    """A name for what will run: the same in every process and on every machine, another if anything differs.

    The campaign's name and the role are left out: they do not change the run.
    """
    plain = [template, sorted(parameters.items()), framework, device, repetition, steps, source]
    return hashlib.sha256(json.dumps(plain, separators=(",", ":")).encode()).hexdigest()[:32]


class TimelineSampler:
    """A timeline of at most `most` points, whatever the number of samples: each is the highest of its stretch."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._points: list[tuple[float, int]] = []
        self._samples_per_point = 1
        self._waiting: list[tuple[float, int]] = []

    def add(self, seconds: float, held: int) -> None:
        self._waiting.append((seconds, held))
        if len(self._waiting) < self._samples_per_point:
            return
        self._points.append(_highest(self._waiting))
        self._waiting.clear()
        if len(self._points) >= self._most:
            self._points = [_highest(self._points[i : i + 2]) for i in range(0, len(self._points), 2)]
            self._samples_per_point *= 2

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        last = [_highest(self._waiting)] if self._waiting else []
        return tuple((round(at, 4), held) for at, held in self._points + last)


def _highest(points: list[tuple[float, int]]) -> tuple[float, int]:
    return max(points, key=lambda point: point[1])


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
    """Exact where `outcome` is ok; else the most that it held before it ended."""
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
