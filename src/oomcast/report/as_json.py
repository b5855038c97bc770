"""The machine's form: integers in bytes, names as in the Python objects."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import Any

from ..estimation import Calibration, CalibrationChange, Estimate
from ..simulate import ReplayResult

__all__ = ["calibration_as_json", "calibration_change_as_json", "estimate_as_json", "replay_as_json"]


def estimate_as_json(estimate: Estimate) -> dict[str, Any]:
    """Plain data for `json.dumps`: what the Estimate's fields and properties are called, apart from `history`.

    `peak_by_phase` is what 0.1.0 called `phase_peaks`; it is kept beside it for one release.
    """
    plain: dict[str, Any] = _plain(dataclasses.replace(estimate, history=None))
    del plain["history"]
    plain["phase_peaks"] = [
        {"step": step, "phase": phase, "allocated": allocated, "reserved": reserved}
        for step, phase, allocated, reserved in estimate.phase_peaks
    ]
    plain["peak_by_phase"] = plain["phase_peaks"]
    plain["highest_by_phase"] = {
        phase: {"allocated": allocated, "reserved": reserved}
        for phase, (allocated, reserved) in estimate.highest_by_phase.items()
    }
    return {**plain, "fits": estimate.fits, "headroom": estimate.headroom}


def calibration_as_json(calibration: Calibration) -> dict[str, Any]:
    return {"name": calibration.name, **_plain(calibration)}


def calibration_change_as_json(change: CalibrationChange) -> dict[str, Any]:
    """What was before and what is after, for the environment and for the job."""
    return {
        "calibration": calibration_as_json(change.calibration),
        "path": str(change.path),
        "before": {"constants": _plain(change.constants_before), "estimate": estimate_as_json(change.before)},
        "after": {"constants": _plain(change.constants_after), "estimate": estimate_as_json(change.after)},
    }


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
