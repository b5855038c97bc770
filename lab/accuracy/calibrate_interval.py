"""The interval from the errors of measured runs, so that it holds for model families that were never seen."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oomcast.errors import BadInput
from oomcast.estimation import Interval, QuantileCurve, group_curve, interval_to_json, leave_group_out

from .cases import Case, Measure
from .metrics import Judged

__all__ = ["FittedInterval", "FittedKind", "fit_interval", "write_interval"]

LEVELS = (0.01, *(round(0.025 * step, 3) for step in range(1, 40)), 0.99)
"""The quantiles that are kept."""


@dataclass(frozen=True)
class FittedKind:
    """For one source of the context: the catalogue, or a calibration."""

    interval: Interval
    exceeded: float
    """The share of rows above the one-sided bound, each family judged by a bound made from the others."""
    headroom: float
    """The mean of that bound over the truth, less 1."""
    rows: int
    families: int


@dataclass(frozen=True)
class FittedInterval:
    name: str
    catalogue: FittedKind
    calibrated: FittedKind | None

    @property
    def interval(self) -> Interval:
        """What holds where nothing was calibrated."""
        return self.catalogue.interval

    @property
    def one_sided(self) -> float:
        return self.interval.upper_one_sided

    @property
    def exceeded(self) -> float:
        return self.catalogue.exceeded

    @property
    def headroom(self) -> float:
        return self.catalogue.headroom


def fit_interval(
    pairs: Sequence[tuple[Case, Judged]],
    calibrated: Sequence[tuple[Case, Judged]] = (),
    coverage: float = 0.95,
    label: str = "accuracy",
) -> FittedInterval:
    """From estimates beside their truths; `calibrated` are those with one constant per campaign as the context.

    Only measured device totals count: that is what the interval is about. Families of different data sets are
    different families. Without `calibrated` there is one kind for both.
    """
    catalogue = _fit(pairs, coverage, label, "contexts from the catalogue")
    with_constant = _fit(calibrated, coverage, label, "one context per campaign, from other families")
    if catalogue is None:
        raise BadInput("an interval needs rows with a measured device total, and there is none.")
    return FittedInterval(catalogue.interval.id, catalogue, with_constant)


def _fit(pairs: Sequence[tuple[Case, Judged]], coverage: float, label: str, how: str) -> FittedKind | None:
    judged = [(case, one) for case, one in pairs if case.measure is Measure.DEVICE_TOTAL]
    known = [(f"{case.data}/{case.family}", one.truth / one.estimate) for case, one in judged if one.truth]
    if not known:
        return None
    families = [family for family, _ in known]
    ratios = [ratio for _, ratio in known]
    count = len(set(families))
    # A level is promised by its own weight of families, less one that stands for the family to come.
    needed = math.ceil((1 + coverage) / (1 - coverage) - 1e-9)
    if count < needed:
        raise BadInput(f"{count} model families are too few for an interval of {coverage:.0%}: {needed} are needed.")
    side = round((1 - coverage) / 2, 6)
    exact = group_curve(ratios, families, (*LEVELS, side, 1 - side, coverage))
    curve = QuantileCurve(exact.levels, tuple(round(value, 4) for value in exact.values))
    left_out = leave_group_out(ratios, families, coverage)
    finite = [(bound, ratio) for bound, ratio in zip(left_out.bounds, ratios, strict=True) if math.isfinite(bound)]
    data = ", ".join(sorted({case.data for case, one in judged if one.truth}))
    return FittedKind(
        interval=Interval(
            id=f"{label}-{len(known)}",
            coverage=coverage,
            lower=round(curve.at(side), 4),
            upper=round(curve.at(1 - side), 4),
            upper_one_sided=round(curve.at(coverage), 4),
            provenance=f"truth / estimate of {len(known)} runs in {count} model families ({data}), {how}, "
            f"grouped conformal; with families left out {1 - left_out.covered:.1%} exceed the one-sided bound",
            curve=curve,
            runs=len(known),
        ),
        exceeded=1 - left_out.covered,
        headroom=sum(bound / ratio - 1 for bound, ratio in finite) / len(finite) if finite else math.inf,
        rows=len(known),
        families=count,
    )


def write_interval(fitted: FittedInterval, path: Path) -> None:
    """In the form that `oomcast.estimate` reads."""
    kinds = {"catalogue": fitted.catalogue.interval}
    if fitted.calibrated is not None:
        kinds["calibrated"] = fitted.calibrated.interval
    try:
        path.write_text(json.dumps(interval_to_json(fitted.name, kinds), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write the interval to {path}: {error.strerror or error}.") from error
