"""What people and programs read: text for the terminal, JSON for the rest. Pure functions of what they show."""

from ._calibration_text import render_calibration, render_calibration_change, render_calibrations
from ._campaign_html import campaign_html, draw_screening
from ._campaign_json import campaign_plan_as_json, campaign_status_as_json, gap_as_json
from ._campaign_text import (
    campaign_progress_words,
    render_campaign_plan,
    render_campaign_status,
    render_gap,
    render_screening,
)
from ._diff import Change, Difference, compare
from ._diff_sides import Held, Side, read_side
from ._diff_text import difference_as_json, difference_html, render_difference
from ._equation_text import (
    equation_as_json,
    prediction_as_json,
    render_equation,
    render_equation_forms,
    render_prediction,
)
from ._figure import draw_estimate
from ._html import estimate_fragment, estimate_html
from ._json import calibration_as_json, calibration_change_as_json, estimate_as_json, replay_as_json
from ._memory_viz import snapshot_as_pickle, snapshot_of
from ._text import render_devices, render_estimate, render_replay

__all__ = [
    "Change",
    "Difference",
    "Held",
    "Side",
    "calibration_as_json",
    "calibration_change_as_json",
    "campaign_html",
    "campaign_plan_as_json",
    "campaign_progress_words",
    "campaign_status_as_json",
    "compare",
    "difference_as_json",
    "difference_html",
    "draw_estimate",
    "draw_screening",
    "equation_as_json",
    "estimate_as_json",
    "estimate_fragment",
    "estimate_html",
    "gap_as_json",
    "prediction_as_json",
    "read_side",
    "render_calibration",
    "render_calibration_change",
    "render_calibrations",
    "render_campaign_plan",
    "render_campaign_status",
    "render_devices",
    "render_difference",
    "render_equation",
    "render_equation_forms",
    "render_estimate",
    "render_gap",
    "render_prediction",
    "render_replay",
    "render_screening",
    "replay_as_json",
    "snapshot_as_pickle",
    "snapshot_of",
]
