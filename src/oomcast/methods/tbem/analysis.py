"""What a fitted campaign tells of a framework: the Gap's constant and slope, runs that stand out, one factor's curve.

The Gap is a measure of a framework's efficiency (TBEM, section III-B). For comparison it is put as a line over SGV:
what a process holds before any tensor, and what each byte of tensors costs beyond itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ...errors import BadInput, UnknownName
from .factors import Factor
from .gap import Gap, GapRow
from .polynomial import PolynomialRegression, t_quantile

__all__ = ["Curve", "CurvePoint", "GapLine", "Interval", "Outlier", "factor_curve", "gap_line", "outliers"]


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class GapLine:
    """Gap = constant + slope · SGV, by least squares of the relative error, with 95 % intervals (Student's t)."""

    constant: Interval
    """Bytes."""
    slope: Interval
    """Bytes for each byte of SGV."""
    left: float
    """Root mean square of what the line leaves over, as a share of GV."""


def gap_line(gap: Gap, level: float = 0.95) -> GapLine:
    """Over all measured cases, those kept aside too: this is a description, not a prediction."""
    rows = gap.rows
    if len(rows) < 4:
        raise BadInput(f"campaign {gap.campaign!r} has {len(rows)} runs; a constant and a slope need at least 4.")
    weights = np.array([1 / max(row.measured, 1) for row in rows])
    design = np.array([[1.0, float(row.static.total)] for row in rows]) * weights[:, None]
    response = np.array([float(row.gap) for row in rows]) * weights
    unit = np.abs(design).max(axis=0)
    solved, *_ = np.linalg.lstsq(design / unit, response, rcond=None)
    left = response - design / unit @ solved
    freedom = len(rows) - 2
    variance = float(left @ left) / freedom
    errors = np.sqrt(np.diag(np.linalg.pinv((design / unit).T @ (design / unit))) * variance) / unit
    reach = t_quantile(0.5 + level / 2, freedom)
    constant, slope = (
        Interval(float(value), float(value - reach * error), float(value + reach * error))
        for value, error in zip(solved / unit, errors, strict=True)
    )
    return GapLine(constant, slope, math.sqrt(variance))


@dataclass(frozen=True)
class Outlier:
    """A run that the fit of all others misses by far more than it misses those."""

    row: GapRow
    ratio: float
    """Measured / estimated by a fit without it."""
    score: float
    """How far from the median, in robust standard deviations."""


_FAR = 4.0
_LEAST_SPREAD = 0.002
"""Repeated runs differ by a thousandth or two: nearer than that nothing stands out."""


def outliers(gap: Gap) -> tuple[Outlier, ...]:
    """Measured cases whose error, by a fit that had not seen them, is out of line with the others', farthest first.

    Such a run was disturbed, or it took another path (another kernel, another allocator's bin): look at it before the
    fit is believed there.
    """
    names = [factor.name for factor in gap.factors]
    places = dict.fromkeys(tuple(repr(row.parameters[name]) for name in names) for row in gap.runs)
    by_place = {
        place: [row for row in gap.runs if tuple(repr(row.parameters[name]) for name in names) == place]
        for place in places
    }
    rows = [*gap.checks, *(row for place in places for row in by_place[place])]
    if len(rows) != len(gap.ratios):
        return ()
    errors = [math.log(ratio) for ratio in gap.ratios]
    middle = median(errors)
    spread = max(1.4826 * median(abs(error - middle) for error in errors), _LEAST_SPREAD)
    found = [
        Outlier(row, ratio, (error - middle) / spread)
        for row, ratio, error in zip(rows, gap.ratios, errors, strict=True)
    ]
    return tuple(sorted((one for one in found if abs(one.score) > _FAR), key=lambda one: -abs(one.score)))


@dataclass(frozen=True)
class CurvePoint:
    value: float
    fitted: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """GV as a polynomial of one factor, with the band in which a new run is expected: the papers' figure 2."""

    factor: Factor
    model: PolynomialRegression
    points: tuple[CurvePoint, ...]
    level: float


def factor_curve(gap: Gap, name: str, level: float = 0.95, steps: int = 60) -> Curve:
    """Fitted to the array's runs. Where other factors vary too, what they do is in the band."""
    known = {factor.name: factor for factor in gap.factors}
    if name not in known:
        raise UnknownName("factor", name, known, f"There are {', '.join(known)}.")
    factor = known[name]
    if not factor.is_numeric:
        raise BadInput(f"{name} has words for levels; a curve is drawn over numbers.")
    values = [float(row.parameters[name]) for row in gap.runs]
    model = PolynomialRegression(max_degree=3).fit(_column(values), [float(row.measured) for row in gap.runs], [name])
    low, high = min(values), max(values)
    at = [low + (high - low) * step / steps for step in range(steps + 1)]
    fitted = model.predict(_column(at))
    below, above = model.predict_interval(_column(at), level)
    points = (CurvePoint(*map(float, point)) for point in zip(at, fitted, below, above, strict=True))
    return Curve(factor, model, tuple(points), level)


def _column(values: Sequence[float]) -> list[list[float]]:
    return [[value] for value in values]
