"""What people and programs read: text for the terminal, JSON for the rest. Pure functions of what they show."""

from ._calibration_text import render_calibration, render_calibration_change, render_calibrations
from ._json import calibration_as_json, calibration_change_as_json, estimate_as_json, replay_as_json
from ._text import render_devices, render_estimate, render_replay

__all__ = [
    "calibration_as_json",
    "calibration_change_as_json",
    "estimate_as_json",
    "render_calibration",
    "render_calibration_change",
    "render_calibrations",
    "render_devices",
    "render_estimate",
    "render_replay",
    "replay_as_json",
]
