"""How far the truth lies from the point estimate: ratios measured on real runs, shipped as data."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources

__all__ = ["Interval", "load_interval"]


@dataclass(frozen=True)
class Interval:
    """The true device total lies between `lower` and `upper` times the estimate in a `coverage` share of runs."""

    id: str
    coverage: float
    lower: float
    upper: float
    provenance: str

    def around(self, device_total: int, floor: int) -> tuple[int, int]:
        """Low and high; never below what the parameters and the context alone take."""
        return max(floor, round(device_total * self.lower)), round(device_total * self.upper)


@functools.cache
def load_interval() -> Interval:
    text = resources.files(__package__).joinpath("interval.json").read_text(encoding="utf-8")
    return Interval(**json.loads(text))
