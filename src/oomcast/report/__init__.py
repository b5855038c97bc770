"""What people and programs read: text for the terminal, JSON for the rest. Pure functions of what they show."""

from ._json import estimate_as_json, replay_as_json
from ._text import render_devices, render_estimate, render_replay

__all__ = ["estimate_as_json", "render_devices", "render_estimate", "render_replay", "replay_as_json"]
