"""What a framework holds beyond the static estimate, learnt from a campaign's runs: Gap = GV - SGV.

Polynomial regression gives the Gap as a function of the hyperparameters, or of what the trace tells of them (SGV, the
parameters' bytes, the largest tensor), whichever does better on runs kept out of the fit. Every error counts by its
share of the measured memory, since that is what the estimate's error is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..design import Case, Factor, Role, Value, encode
from ..errors import BadInput
from ..learn import PolynomialRegression, QuantileCurve, group_curve
from ._static_value import StaticValue, case_trace, static_value

if TYPE_CHECKING:
    from ..design import Campaign
    from ..measure import Environment, Store

__all__ = ["FEATURES", "Gap", "GapRow", "Mape", "fit_campaign", "fit_gap"]

FEATURES = ("static", "factors", "both")
_LEAST_RUNS = 4
_DEGREE = {"static": 2, "factors": 4, "both": 2}
_LEVELS = tuple(step / 200 for step in range(1, 200))


@dataclass(frozen=True)
class GapRow:
    """One measured case beside its static figures."""

    key: str
    role: Role
    parameters: Mapping[str, Value]
    """Those that the campaign varies."""
    static: StaticValue
    measured: int
    seconds: float

    @property
    def gap(self) -> int:
        return self.measured - self.static.total

    @property
    def is_check(self) -> bool:
        return self.role == "held_out"


@dataclass(frozen=True)
class Mape:
    """Mean absolute percentage errors over the same cases, as shares."""

    cases: int
    static: float
    direct: float
    gap: float
    by_features: Mapping[str, float]
    """Of SGV + Gap, by what the Gap is a function of."""


@dataclass(frozen=True)
class Gap:
    """A fitted campaign: all that estimates and reports need."""

    campaign: str
    template: str
    framework: str
    device: str
    steps: int
    factors: tuple[Factor, ...]
    fixed: Mapping[str, Value]
    """What the template's other parameters were."""
    environment: Mapping[str, Any]
    """Versions, machine and allocator of the runs."""
    versions: Mapping[str, str]
    """Of what made the static figures."""
    rows: tuple[GapRow, ...]
    features: str
    """What the Gap is a function of: `static`, `factors` or `both`."""
    models: Mapping[str, PolynomialRegression] = field(hash=False)
    """The Gap by features."""
    direct: PolynomialRegression = field(hash=False)
    """GV itself as a function of the factors: what the Gap is compared with."""
    ratios: tuple[float, ...]
    """Measured / estimated of every case, each by a fit that had not seen it."""

    @property
    def model(self) -> PolynomialRegression:
        return self.models[self.features]

    def predict(self, parameters: Case, static: StaticValue) -> int:
        """SGV + Gap, never below SGV's own parameters."""
        return self._predict_all([parameters], [static], self.features)[0]

    def predict_direct(self, parameters: Case) -> int:
        return round(float(self.direct.predict(encode(self.factors, [parameters])[1])[0]))

    def mape(self, rows: Sequence[GapRow]) -> Mape:
        """How far the static estimate, the direct polynomial and SGV + Gap are from these measurements."""
        if not rows:
            return Mape(0, math.nan, math.nan, math.nan, dict.fromkeys(self.models, math.nan))
        cases, static = [row.parameters for row in rows], [row.static for row in rows]
        return Mape(
            cases=len(rows),
            static=_mape(rows, [row.static.total for row in rows]),
            direct=_mape(rows, [self.predict_direct(case) for case in cases]),
            gap=_mape(rows, self._predict_all(cases, static, self.features)),
            by_features={name: _mape(rows, self._predict_all(cases, static, name)) for name in self.models},
        )

    @property
    def runs(self) -> tuple[GapRow, ...]:
        """What was learnt from."""
        return tuple(row for row in self.rows if not row.is_check)

    @property
    def checks(self) -> tuple[GapRow, ...]:
        """Configurations that were kept out of every fit."""
        return tuple(row for row in self.rows if row.is_check)

    def curve(self) -> QuantileCurve:
        """Measured / estimated of cases never seen."""
        return group_curve(self.ratios, range(len(self.ratios)), _LEVELS)

    def _predict_all(self, cases: Sequence[Case], static: Sequence[StaticValue], features: str) -> list[int]:
        model = self.models[features]
        gaps = model.predict(_variables(self.factors, cases, static, features)[1])
        return [max(one.total + round(float(gap)), one.parameters, 1) for one, gap in zip(static, gaps, strict=True)]


def fit_campaign(
    campaign: Campaign,
    store: Store,
    *,
    features: str | None = None,
    before: Gap | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gap:
    """The Gap of what the store holds of the campaign. An earlier fit `before` spares the captures that it made."""
    known = before.rows if before is not None and _same_statics(campaign, before) else ()
    rows, environment = _rows(campaign, store, known, progress)
    return fit_gap(campaign, rows, environment.as_dict(), features)


def _same_statics(campaign: Campaign, before: Gap) -> bool:
    same = (before.template, before.device, before.steps) == (campaign.template, campaign.device, campaign.steps)
    factors = {factor.name for factor in before.factors} == {factor.name for factor in campaign.all_factors}
    return same and factors and before.fixed == _fixed(campaign) and before.versions == _static_versions()


def _fixed(campaign: Campaign) -> dict[str, Value]:
    from ..design.templates import TEMPLATES

    varied = {factor.name for factor in campaign.all_factors}
    defaults = {one.name: one.default for one in TEMPLATES[campaign.template].parameters}
    return {name: value for name, value in {**defaults, **campaign.fixed}.items() if name not in varied}


def _rows(
    campaign: Campaign,
    store: Store,
    known: Iterable[GapRow],
    progress: Callable[[int, int], None] | None,
) -> tuple[tuple[GapRow, ...], Environment]:
    """Every finished case of the campaign with its static figures."""
    from ..measure import Outcome, Selection

    measured = list(store.measurements(Selection(campaign=campaign.name, outcome=Outcome.OK)))
    measured = [one for one in measured if one.case.template == campaign.template]
    if not measured:
        raise BadInput(
            f"the store {store.name} has no finished case of campaign {campaign.name!r}; "
            "run it first with oomcast campaign run."
        )
    places = {(one.environment.version, one.environment.allocator, one.environment.gpu) for one in measured}
    if len(places) > 1:
        told = "; ".join(sorted(" ".join(filter(None, place)) for place in places))
        raise BadInput(f"campaign {campaign.name!r} was measured under {told}; keep one store for each of them.")
    environment = measured[0].environment
    device = environment.gpu if campaign.device == "cuda" else campaign.device
    names = [factor.name for factor in campaign.all_factors]
    figures = {_identity(row.parameters, names): row.static for row in known}
    rows = []
    for number, one in enumerate(measured):
        if progress is not None:
            progress(number, len(measured))
        case = one.case
        identity = _identity(case.parameters, names)
        if identity not in figures:
            trace = case_trace(case.template, case.parameters, case.steps, device)
            figures[identity] = static_value(trace, device)
        varied = {name: case.parameters[name] for name in names}
        rows.append(GapRow(case.key, case.role, varied, figures[identity], one.peak_bytes, one.seconds))
    return tuple(rows), environment


def fit_gap(
    campaign: Campaign, rows: Sequence[GapRow], environment: Mapping[str, Any], features: str | None = None
) -> Gap:
    """Learn from the rows of the array; those held out only judge. `features` None: chosen by cross-validation."""
    runs = [row for row in rows if not row.is_check]
    if len(runs) < _LEAST_RUNS:
        raise BadInput(
            f"campaign {campaign.name!r} has {len(runs)} finished cases to learn from; "
            f"at least {_LEAST_RUNS} are needed."
        )
    if features is not None and features not in FEATURES:
        raise BadInput(f"the Gap is a function of {', '.join(FEATURES)}, not of {features!r}.")
    factors = campaign.all_factors
    models = {name: _fit(factors, runs, name) for name in FEATURES}
    gap = Gap(
        campaign=campaign.name,
        template=campaign.template,
        framework=campaign.framework,
        device=campaign.device,
        steps=campaign.steps,
        factors=factors,
        fixed=_fixed(campaign),
        environment=dict(environment),
        versions=_static_versions(),
        rows=tuple(rows),
        features=features or min(FEATURES, key=lambda name: models[name].cv_error_),
        models=models,
        direct=_fit_direct(factors, runs),
        ratios=(),
    )
    return replace(gap, ratios=_unseen_ratios(gap))


def _static_versions() -> dict[str, str]:
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return {"oomcast": __version__, "torch": torch}


def _fit(factors: Sequence[Factor], rows: Sequence[GapRow], features: str) -> PolynomialRegression:
    names, variables = _variables(factors, [row.parameters for row in rows], [row.static for row in rows], features)
    # The relative error of SGV + Gap is the Gap's error over GV.
    weights = [1 / max(row.measured, 1) for row in rows]
    model = PolynomialRegression(max_degree=_DEGREE[features])
    return model.fit(variables, [float(row.gap) for row in rows], names, weights)


def _fit_direct(factors: Sequence[Factor], rows: Sequence[GapRow]) -> PolynomialRegression:
    names, variables = encode(factors, [row.parameters for row in rows])
    return PolynomialRegression(relative=True).fit(variables, [float(row.measured) for row in rows], names)


def _variables(
    factors: Sequence[Factor], cases: Sequence[Case], static: Sequence[StaticValue], features: str
) -> tuple[tuple[str, ...], list[list[float]]]:
    told = [[float(one.total), float(one.parameters), float(one.largest)] for one in static]
    if features == "static":
        return ("SGV", "parameters", "largest"), told
    names, encoded = encode(factors, cases)
    varied = [[float(value) for value in row] for row in encoded]
    if features == "factors":
        return names, varied
    return (*names, "SGV", "parameters", "largest"), [a + b for a, b in zip(varied, told, strict=True)]


def _unseen_ratios(gap: Gap) -> tuple[float, ...]:
    """The checks by the fit itself; each run by a fit without it and its repetitions."""
    ratios = [row.measured / gap.predict(row.parameters, row.static) for row in gap.checks]
    names = [factor.name for factor in gap.factors]
    for identity in dict.fromkeys(_identity(row.parameters, names) for row in gap.runs):
        out = [row for row in gap.runs if _identity(row.parameters, names) == identity]
        others = [row for row in gap.runs if _identity(row.parameters, names) != identity]
        without = replace(gap, models={gap.features: _fit(gap.factors, others, gap.features)})
        ratios += [row.measured / without.predict(row.parameters, row.static) for row in out]
    return tuple(ratios)


def _identity(parameters: Case, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(parameters[name])) for name in names)


def _mape(rows: Sequence[GapRow], estimates: Sequence[float]) -> float:
    errors = [abs(one / row.measured - 1) for row, one in zip(rows, estimates, strict=True)]
    return sum(errors) / len(errors)
