"""What people and programs read: text for the terminal, JSON for the rest. Pure functions of what they show."""

from __future__ import annotations

from typing import Any

from ..moved import REPORTS_OF_METHODS
from .as_json import calibration_as_json, calibration_change_as_json, estimate_as_json, replay_as_json
from .calibration_text import render_calibration, render_calibration_change, render_calibrations
from .contribution_text import contribution_as_json, render_contribution
from .diff import Change, Difference, Held, Side, compare, read_side
from .diff_text import difference_as_json, difference_html, render_difference
from .estimate_text import render_devices, render_estimate, render_replay
from .figures import draw_estimate
from .memory_viz import snapshot_as_pickle, snapshot_of
from .page import estimate_fragment, estimate_html

__all__ = [
    "Change",
    "Difference",
    "Held",
    "Side",
    "calibration_as_json",
    "calibration_change_as_json",
    "compare",
    "contribution_as_json",
    "difference_as_json",
    "difference_html",
    "draw_estimate",
    "estimate_as_json",
    "estimate_fragment",
    "estimate_html",
    "read_side",
    "render_calibration",
    "render_calibration_change",
    "render_calibrations",
    "render_contribution",
    "render_devices",
    "render_difference",
    "render_estimate",
    "render_replay",
    "replay_as_json",
    "snapshot_as_pickle",
    "snapshot_of",
]


def __getattr__(name: str) -> Any:
    """Only for names that 0.1.0 had here: an ImportError, since `from … import` hides what an AttributeError says."""
    home = REPORTS_OF_METHODS.get(name)
    if home is not None:
        raise ImportError(f"oomcast.report.{name} has moved: it is in {home}.", name=__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
