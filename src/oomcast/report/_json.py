"""The machine's form: integers in bytes, names as in the Python objects."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from ..estimate import Estimate
from ..simulate import ReplayResult

__all__ = ["estimate_as_json", "replay_as_json"]


def estimate_as_json(estimate: Estimate) -> dict[str, Any]:
    """Plain data for `json.dumps`."""
    plain: dict[str, Any] = _plain(estimate)
    plain["peak_by_phase"] = [
        {"step": step, "phase": phase, "allocated": allocated, "reserved": reserved}
        for step, phase, allocated, reserved in estimate.phase_peaks
    ]
    del plain["phase_peaks"]
    return plain


def replay_as_json(result: ReplayResult) -> dict[str, Any]:
    plain: dict[str, Any] = _plain(result)
    return plain


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value
