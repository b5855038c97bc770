"""How far the truth lies from the point estimate: the ratios of measured runs, shipped as data (`interval.json`).

There are two kinds: with the catalogue's context, and with one calibrated by a real run, which is nearer.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ..errors import BadInput, OomcastError
from ..learn import QuantileCurve

__all__ = ["INTERVAL_SCHEMA", "Interval", "interval_from_json", "interval_to_json", "load_interval"]

INTERVAL_SCHEMA = 2
_FILE = "interval.json"
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Interval:
    """The distribution of truth / estimate over model families that were never seen."""

    id: str
    coverage: float
    """Of the three bounds below: what one gets without asking for another."""
    lower: float
    upper: float
    """The true device total lies between `lower` and `upper` times the estimate in a `coverage` share of runs."""
    upper_one_sided: float
    """It does not exceed this many times the estimate in a `coverage` share of runs."""
    provenance: str
    curve: QuantileCurve

    def check(self, coverage: float) -> None:
        """Raises BadInput for a coverage that the measured runs cannot promise."""
        most = 1 - 2 * max(self.curve.levels[0], 1 - self.curve.levels[-1])
        if not 0 < coverage <= most + _TOLERANCE:
            raise BadInput(
                f"the coverage must be above 0 and at most {most:.3g}, not {coverage:g}: "
                "the measured runs behind the interval cannot promise more."
            )

    def around(self, device_total: int, floor: int, coverage: float | None = None) -> tuple[int, int]:
        """Low and high, the estimate always between; never below what parameters and context alone take."""
        side = (1 - (self.coverage if coverage is None else coverage)) / 2
        low, high = (round(device_total * self.curve.at(level)) for level in (side, 1 - side))
        return max(min(low, device_total), floor), max(high, device_total)

    def not_exceeded(self, device_total: int, coverage: float | None = None) -> int:
        """The one-sided bound; never below the estimate."""
        level = self.coverage if coverage is None else coverage
        return max(round(device_total * self.curve.at(max(level, 0.5))), device_total)

    def chance_above(self, needed: int, limit: int) -> float:
        """The probability that what is estimated as `needed` is more than `limit` in truth."""
        return 1.0 if limit <= 0 else round(self.curve.above(limit / max(needed, 1)), 6)


@functools.cache
def load_interval(calibrated: bool = False) -> Interval:
    """The shipped interval for a context from the catalogue, or for a calibrated one."""
    text = resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8")
    try:
        return interval_from_json(json.loads(text), calibrated)
    except (KeyError, TypeError, ValueError) as problem:
        raise OomcastError(f"the data file oomcast/estimate/{_FILE} is broken: {problem}.") from problem


def interval_from_json(content: Mapping[str, Any], calibrated: bool) -> Interval:
    """Raises KeyError, TypeError or ValueError for what is not an interval of this version."""
    if content["schema"] != INTERVAL_SCHEMA:
        raise ValueError(f"schema {INTERVAL_SCHEMA} is expected")
    # Without runs to tell how near a calibrated context comes, the wider interval holds for it as well.
    kind = "calibrated" if calibrated and "calibrated" in content else "catalogue"
    told = content[kind]
    interval = Interval(
        id=f"{content['id']}-{kind}",
        coverage=told["coverage"],
        lower=told["lower"],
        upper=told["upper"],
        upper_one_sided=told["upper_one_sided"],
        provenance=told["provenance"],
        curve=QuantileCurve(tuple(told["levels"]), tuple(told["quantiles"])),
    )
    side = (1 - interval.coverage) / 2
    for bound, level in ((interval.lower, side), (interval.upper, 1 - side), (interval.upper_one_sided, 1 - 2 * side)):
        if abs(interval.curve.at(level) - bound) > _TOLERANCE:
            raise ValueError(f"its bound {bound} is not the quantile {level:.3g} of its curve")
    return interval


def interval_to_json(name: str, kinds: Mapping[str, Interval]) -> dict[str, Any]:
    """Plain data that `interval_from_json` reads; the kinds are `catalogue` and `calibrated`."""
    return {"schema": INTERVAL_SCHEMA, "id": name} | {
        kind: {
            "coverage": one.coverage,
            "lower": one.lower,
            "upper": one.upper,
            "upper_one_sided": one.upper_one_sided,
            "provenance": one.provenance,
            "levels": list(one.curve.levels),
            "quantiles": list(one.curve.values),
        }
        for kind, one in kinds.items()
    }
