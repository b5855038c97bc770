"""The interval from the errors of measured runs, so that it holds for model families that were never seen."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from oomcast.errors import BadInput
from oomcast.estimation import (
    Doubt,
    DoubtWeights,
    Interval,
    QuantileCurve,
    group_curve,
    interval_to_json,
    leave_group_out,
)

from .cases import Case, Measure
from .metrics import Judged

__all__ = ["FittedInterval", "FittedKind", "fit_interval", "fit_weights", "write_interval"]

Floats = npt.NDArray[np.float64]

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
class _Run:
    data: str
    family: str
    error: float
    """Truth / estimate, less 1."""
    doubt: Doubt | None
    total: int
    """The estimated device total."""

    @property
    def cache_share(self) -> float:
        return 0.0 if self.doubt is None else self.doubt.cache / self.total

    @property
    def workspace_share(self) -> float:
        return 0.0 if self.doubt is None else self.doubt.workspace / self.total


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

    What the device or its allocator held counts: that is what the interval is about. Families of different data sets
    are different families. Without `calibrated` there is one kind for both.
    """
    runs = _runs(pairs)
    if not runs:
        raise BadInput("an interval needs rows with a measured device total, and there is none.")
    others = _runs(calibrated)
    for some in filter(None, (runs, others)):
        _check_families(some, coverage)
    weights = fit_weights(runs, coverage)
    catalogue = _fit(runs, weights, coverage, label, "contexts from the catalogue")
    how = "one context per campaign, from other families"
    with_constant = _fit(others, weights, coverage, label, how) if others else None
    return FittedInterval(catalogue.interval.id, catalogue, with_constant)


def _runs(pairs: Sequence[tuple[Case, Judged]]) -> list[_Run]:
    return [
        _Run(
            case.data,
            f"{case.data}/{case.family}",
            one.truth / one.estimate - 1,
            one.doubt,
            one.device_total or one.estimate,
        )
        for case, one in pairs
        if one.truth and case.measure in (Measure.DEVICE_TOTAL, Measure.RESERVED)
    ]


def _check_families(runs: Sequence[_Run], coverage: float) -> None:
    """A level is promised by its own weight of families, less one that stands for the family to come."""
    count, needed = len({run.family for run in runs}), math.ceil((1 + coverage) / (1 - coverage) - 1e-9)
    if count < needed:
        raise BadInput(f"{count} model families are too few for an interval of {coverage:.0%}: {needed} are needed.")


def fit_weights(runs: Sequence[_Run], coverage: float) -> DoubtWeights:
    """What a job's cache and workspace say of its error: linear quantile regression of the two ends of an interval of
    that coverage; every family counts the same."""
    from scipy.optimize import minimize  # here alone: judging rows needs no scipy

    level = 1 - (1 - coverage) / 2
    families = Counter(run.family for run in runs)
    weight = np.array([1 / families[run.family] for run in runs])
    errors = np.array([run.error for run in runs])
    shares = np.array([(1.0, run.cache_share, run.workspace_share) for run in runs])

    def loss(logarithms: Floats) -> float:
        wide = shares @ np.exp(logarithms)
        beyond = np.concatenate([errors - wide, -errors - wide])
        return float((np.tile(weight, 2) * np.where(beyond > 0, level, level - 1) * beyond).sum())

    starts = [np.array([-5.0, slope, slope]) for slope in (-4.0, -2.5, -1.5)]
    options = {"maxiter": 8000, "xatol": 1e-4, "fatol": 1e-9}
    found = min(
        (minimize(loss, start, method="Nelder-Mead", options=options) for start in starts), key=lambda one: one.fun
    )
    base, cache, workspace = (round(float(value), 5) for value in np.exp(found.x))
    wide = shares @ np.array([base, cache, workspace])
    order = np.argsort(wide)
    middle = float(wide[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])
    return DoubtWeights(base, cache, workspace, round(middle, 5))


def _fit(runs: Sequence[_Run], weights: DoubtWeights, coverage: float, label: str, how: str) -> FittedKind:
    families = [run.family for run in runs]
    spreads = [1.0 if run.doubt is None else weights.share(run.doubt, run.total) / weights.middle for run in runs]
    # As the job in the middle would have erred.
    ratios = [1 + run.error / spread for run, spread in zip(runs, spreads, strict=True)]
    side = round((1 - coverage) / 2, 6)
    exact = group_curve(ratios, families, (*LEVELS, side, 1 - side, coverage))
    curve = QuantileCurve(exact.levels, tuple(round(value, 4) for value in exact.values))
    left_out = leave_group_out(ratios, families, coverage)
    finite = [
        ((1 + (bound - 1) * spread) / (1 + run.error) - 1)
        for bound, spread, run in zip(left_out.bounds, spreads, runs, strict=True)
        if math.isfinite(bound)
    ]
    data = ", ".join(sorted({run.data for run in runs}))
    return FittedKind(
        interval=Interval(
            id=f"{label}-{len(runs)}",
            coverage=coverage,
            lower=round(curve.at(side), 4),
            upper=round(curve.at(1 - side), 4),
            upper_one_sided=round(curve.at(coverage), 4),
            provenance=f"truth / estimate of {len(runs)} runs in {len(set(families))} model families ({data}), {how}, "
            "grouped conformal, errors divided by what drives them; with families left out "
            f"{1 - left_out.covered:.1%} exceed the one-sided bound",
            curve=curve,
            runs=len(runs),
            weights=weights,
        ),
        exceeded=1 - left_out.covered,
        headroom=sum(finite) / len(finite) if finite else math.inf,
        rows=len(runs),
        families=len(set(families)),
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
