"""The Gap: what real runs hold beyond the static estimate, learnt from a campaign; and its file.

It is a polynomial of the factors, of the trace's figures, or of both, whichever errs least on rows kept out; or, where
a Bayesian design chose the runs, the mean of all short polynomials of both. A Gap that was learnt elsewhere (another
version, GPU or family of networks) can be where learning starts from: that mean then learns the difference alone, from
few runs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from ... import __version__
from ...errors import BadInput
from ...estimation import QuantileCurve, group_curve
from ..fitted_file import FittedFile
from ..measure import Role
from .bayesian import AveragedPolynomial, average_polynomials
from .factors import Case, Factor, Value, encode
from .polynomial import PolynomialRegression
from .static_figures import StaticValue, case_trace, static_value

if TYPE_CHECKING:
    from ..measure import Environment, Store
    from .campaign_file import Campaign

__all__ = [
    "BAYESIAN",
    "FEATURES",
    "GAP_SCHEMA",
    "MODELS",
    "Gap",
    "GapRow",
    "Mape",
    "fit_campaign",
    "fit_gap",
    "gap_bounds",
    "gap_variables",
    "graph_of",
    "read_gap",
    "refit",
    "write_gap",
]

FEATURES = ("static", "factors", "both")
"""What a polynomial of the Gap may be a function of."""
BAYESIAN = "bayesian"
MODELS = (*FEATURES, BAYESIAN)
GapModel: TypeAlias = PolynomialRegression | AveragedPolynomial
_LEAST_RUNS = 4
_LEAST_CARRIED = 1
"""Runs that are needed where an earlier Gap is carried over."""
_DEGREE = {"static": 2, "factors": 4, "both": 2}
_LEVELS = tuple(step / 200 for step in range(1, 200))


@dataclass(frozen=True)
class GapRow:
    """One measured case beside its static figures."""

    key: str
    role: Role
    parameters: Mapping[str, Value]
    """The values of the factors, which the campaign varies."""
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
    """The error of SGV + Gap, for each choice of what the Gap is a function of."""


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
    """The template's other parameters, which all runs shared."""
    environment: Mapping[str, Any]
    """Versions, machine and allocator of the runs."""
    versions: Mapping[str, str]
    """Versions of oomcast and torch that computed the static figures."""
    rows: tuple[GapRow, ...]
    features: str
    """Which of `models` answers: a polynomial of `static`, `factors` or `both`, or `bayesian`."""
    models: Mapping[str, GapModel] = field(hash=False)
    """The Gap, or the difference to `source`'s, by each choice."""
    direct: PolynomialRegression = field(hash=False)
    """GV itself as a function of the factors: what the Gap is compared with."""
    ratios: tuple[float, ...]
    """Measured / estimated of every case, each by a fit that had not seen it."""
    graph: str = "torch"
    """The framework whose graph gave SGV."""
    digests: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Job file → what its text was, the values of its parameters apart."""
    source: Gap | None = None
    """The Gap of another place that this one was carried over from."""

    @property
    def model(self) -> GapModel:
        return self.models[self.features]

    @property
    def seeds(self) -> tuple[str, ...]:
        """The templates and job files of the runs."""
        named = next((factor.levels for factor in self.factors if factor.name == "template"), (self.template,))
        return tuple(map(str, named))

    def gaps(self, cases: Sequence[Case], static: Sequence[StaticValue], features: str | None = None) -> list[float]:
        """The Gap of each case by one of the models."""
        chosen = features or self.features
        own = self.models[chosen].predict(gap_variables(self.factors, cases, static, chosen)[1])
        before = self.source.carried(self.factors, cases, static) if self.source is not None else [0.0] * len(cases)
        return [float(one) + told for one, told in zip(own, before, strict=True)]

    def carried(self, factors: Sequence[Factor], cases: Sequence[Case], static: Sequence[StaticValue]) -> list[float]:
        """What this Gap says of cases of another campaign: by its own model if their factors are its own, else by the
        trace's figures alone."""
        same = {factor.name for factor in self.factors} <= {factor.name for factor in factors}
        words = [factor for factor in self.factors if not factor.is_numeric]
        known = all(case[factor.name] in factor.levels for factor in words for case in cases) if same else False
        if known:
            return self.gaps(cases, static)
        if "static" not in self.models:
            raise BadInput(
                f"campaign {self.campaign!r} has other factors, and no Gap of the trace's figures to carry over."
            )
        # A polynomial means nothing beyond what it was fitted to: there, what it says at the border is carried.
        most = {name: max(getattr(row.static, name) for row in self.rows) for name in StaticValue.NAMES}
        least = {name: min(getattr(row.static, name) for row in self.rows) for name in StaticValue.NAMES}
        inside = [
            StaticValue(**{name: min(max(getattr(one, name), least[name]), most[name]) for name in StaticValue.NAMES})
            for one in static
        ]
        return self.gaps(cases, inside, "static")

    def predict(self, parameters: Case, static: StaticValue) -> int:
        """The estimate: SGV + Gap, never below the bytes of the network's parameters."""
        return self._predict_all([parameters], [static], self.features)[0]

    def predict_direct(self, parameters: Case) -> int:
        return _whole(self.direct.predict(encode(self.factors, [parameters])[1])[0])

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
        """The measured cases that the fit has learnt from."""
        return tuple(row for row in self.rows if not row.is_check)

    @property
    def checks(self) -> tuple[GapRow, ...]:
        """The measured cases that were kept out of every fit, to check it."""
        return tuple(row for row in self.rows if row.is_check)

    def curve(self) -> QuantileCurve:
        """The distribution of measured / estimated, over cases that the fit had not seen."""
        return group_curve(self.ratios, range(len(self.ratios)), _LEVELS)

    def _predict_all(self, cases: Sequence[Case], static: Sequence[StaticValue], features: str) -> list[int]:
        gaps = self.gaps(cases, static, features)
        return [max(one.total + _whole(gap), one.parameters, 1) for one, gap in zip(static, gaps, strict=True)]


def fit_campaign(
    campaign: Campaign,
    store: Store,
    *,
    features: str | None = None,
    before: Gap | None = None,
    source: Gap | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gap:
    """The Gap of what the store holds of the campaign. An earlier fit `before` spares the captures that it made;
    `source` is the Gap of another place to start from."""
    graph = graph_of(campaign)
    known = before.rows if before is not None and before.graph == graph and _same_statics(campaign, before) else ()
    rows, environment = _rows(campaign, store, graph, known, progress)
    return fit_gap(campaign, rows, environment.as_dict(), features, graph=graph, source=source)


def graph_of(campaign: Campaign) -> str:
    """The framework whose graph gives SGV: the campaign's own. A template under Keras has PyTorch's where no
    TensorFlow can be reached."""
    from ...capture.frameworks import interpreter_of
    from ..measure import facts_of

    if campaign.framework != "keras" or any(seed.digest for seed in campaign.seeds):
        return campaign.framework
    return "torch" if facts_of("keras", interpreter_of("tensorflow"))["missing"] else "keras"


def _same_statics(campaign: Campaign, before: Gap) -> bool:
    same = (before.template, before.device, before.steps) == (campaign.template, campaign.device, campaign.steps)
    factors = {factor.name for factor in before.factors} == {factor.name for factor in campaign.all_factors}
    return same and factors and before.fixed == _fixed(campaign) and before.versions == _static_versions()


def _fixed(campaign: Campaign) -> dict[str, Value]:
    """What all runs shared: for several seeds only what the campaign fixes, else all other parameters too."""
    varied = {factor.name for factor in campaign.all_factors}
    if len(campaign.seeds) > 1:
        return dict(campaign.fixed)
    defaults = {one.name: one.default for one in campaign.seeds[0].parameters}
    return {name: value for name, value in {**defaults, **campaign.fixed}.items() if name not in varied}


def _rows(
    campaign: Campaign,
    store: Store,
    graph: str,
    known: Iterable[GapRow],
    progress: Callable[[int, int], None] | None,
) -> tuple[tuple[GapRow, ...], Environment]:
    """Every finished case of the campaign with its static figures."""
    from ..measure import Outcome, Selection

    measured = list(store.measurements(Selection(campaign=campaign.name, outcome=Outcome.OK)))
    seeds = {seed.name for seed in campaign.seeds}
    measured = [one for one in measured if {one.case.template, Path(one.case.template).name} & seeds]
    if not measured:
        raise BadInput(
            f"the store {store.name} has no finished case of campaign {campaign.name!r}; "
            "run it first with oomcast campaign run."
        )
    places = {(one.environment.version, one.environment.allocator, one.environment.gpu) for one in measured}
    if len(places) > 1:
        described = "; ".join(sorted(" ".join(filter(None, place)) for place in places))
        raise BadInput(f"campaign {campaign.name!r} was measured under {described}; keep one store for each of them.")
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
            seed = campaign.seed_of(case.parameters)
            trace = case_trace(seed.reference, case.parameters, case.steps, device, graph)
            figures[identity] = static_value(trace, device)
        varied = {name: case.parameters[name] for name in names}
        rows.append(GapRow(case.key, case.role, varied, figures[identity], one.peak_bytes, one.seconds))
    return tuple(rows), environment


def fit_gap(
    campaign: Campaign,
    rows: Sequence[GapRow],
    environment: Mapping[str, Any],
    features: str | None = None,
    *,
    graph: str = "torch",
    source: Gap | None = None,
) -> Gap:
    """Learn from the rows of the array; those held out only judge. `features` None: chosen by cross-validation."""
    runs = [row for row in rows if not row.is_check]
    least = _LEAST_RUNS if source is None else _LEAST_CARRIED
    if len(runs) < least:
        raise BadInput(
            f"campaign {campaign.name!r} has {len(runs)} finished cases to learn from; at least {least} are needed."
        )
    if features is not None and features not in MODELS:
        raise BadInput(f"the Gap is a function of {', '.join(MODELS)}, not of {features!r}.")
    if source is not None and features not in (None, BAYESIAN):
        raise BadInput(f"a Gap that is carried over is {BAYESIAN}; leave the features out.")
    factors = campaign.all_factors
    names = MODELS if source is None else (BAYESIAN,)
    models = {name: _fit(factors, runs, name, source) for name in names}
    if source is not None and len(runs) > 2:
        alone = _fit(factors, runs, BAYESIAN)
        if alone.cv_error_ < models[BAYESIAN].cv_error_:
            source, models = None, {BAYESIAN: alone}  # these runs tell more by themselves
    # A Bayesian design chose its runs for its own model, which answers; else the papers' form does.
    offered = (BAYESIAN,) if len(models) == 1 or campaign.method == BAYESIAN else FEATURES
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
        features=features or min(offered, key=lambda name: models[name].cv_error_),
        models=models,
        direct=_fit_direct(factors, runs),
        ratios=(),
        graph=graph,
        digests={seed.name: seed.digest for seed in campaign.seeds if seed.digest},
        source=source,
    )
    return replace(gap, ratios=_unseen_ratios(gap))


def refit(gap: Gap, runs: Sequence[GapRow], features: str | None = None) -> Gap:
    """The same campaign learnt from these runs alone, without an interval: to judge designs by.

    `features` None: the polynomial that errs least on rows kept out.
    """
    names = FEATURES if features is None else (features,)
    models = {name: _fit(gap.factors, runs, name, gap.source) for name in names}
    chosen = min(names, key=lambda name: models[name].cv_error_)
    return replace(gap, rows=tuple(runs), models=models, features=chosen, ratios=())


def _static_versions() -> dict[str, str]:
    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = ""
    return {"oomcast": __version__, "torch": torch}


def _fit(factors: Sequence[Factor], rows: Sequence[GapRow], features: str, source: Gap | None = None) -> GapModel:
    cases, static = [row.parameters for row in rows], [row.static for row in rows]
    names, variables = gap_variables(factors, cases, static, features)
    if features == BAYESIAN:
        before = source.carried(factors, cases, static) if source is not None else [0.0] * len(rows)
        response = [row.gap - told for row, told in zip(rows, before, strict=True)]
        scale = [max(row.measured, 1) for row in rows]
        # What few runs do not reach, those behind the source do.
        reached = [*static, *(row.static for row in (source.rows if source is not None else ()))]
        return average_polynomials(
            variables, response, names, scale, len(StaticValue.NAMES), gap_bounds(factors, reached)
        )
    # The relative error of SGV + Gap is the Gap's error over GV.
    weights = [1 / max(row.measured, 1) for row in rows]
    model = PolynomialRegression(max_degree=_DEGREE[features])
    return model.fit(variables, [float(row.gap) for row in rows], names, weights)


def _fit_direct(factors: Sequence[Factor], rows: Sequence[GapRow]) -> PolynomialRegression:
    names, variables = encode(factors, [row.parameters for row in rows])
    return PolynomialRegression(relative=True).fit(variables, [float(row.measured) for row in rows], names)


def gap_variables(
    factors: Sequence[Factor], cases: Sequence[Case], static: Sequence[StaticValue], features: str
) -> tuple[tuple[str, ...], list[list[float]]]:
    figures = [[float(one.total), float(one.parameters), float(one.largest)] for one in static]
    if features == "static":
        return ("SGV", "parameters", "largest"), figures
    names, encoded = encode(factors, cases)
    varied = [[float(value) for value in row] for row in encoded]
    if features == "factors":
        return names, varied
    return (*names, "SGV", "parameters", "largest"), [a + b for a, b in zip(varied, figures, strict=True)]


def gap_bounds(factors: Sequence[Factor], static: Sequence[StaticValue]) -> tuple[list[float], list[float]]:
    """The range of each variable of averaged polynomials: a factor's levels; figures from nothing to the largest."""
    low: list[float] = []
    high: list[float] = []
    for factor in factors:
        if len(factor.levels) < 2:
            continue
        numbers = [float(level) for level in factor.levels] if factor.is_numeric else []
        columns = 1 if numbers else len(factor.levels) - 1
        low += [min(numbers) if numbers else 0.0] * columns
        high += [max(numbers) if numbers else 1.0] * columns
    most = [max(float(getattr(one, name)) for one in static) for name in StaticValue.NAMES]
    return [*low, *(0.0 for _ in most)], [*high, *most]


def _unseen_ratios(gap: Gap) -> tuple[float, ...]:
    """The checks by the fit itself; each run by a fit without it and its repetitions, if any are left to learn from."""
    ratios = [row.measured / gap.predict(row.parameters, row.static) for row in gap.checks]
    names = [factor.name for factor in gap.factors]
    for identity in dict.fromkeys(_identity(row.parameters, names) for row in gap.runs):
        out = [row for row in gap.runs if _identity(row.parameters, names) == identity]
        others = [row for row in gap.runs if _identity(row.parameters, names) != identity]
        if not others:
            continue
        without = replace(gap, models={gap.features: _fit(gap.factors, others, gap.features, gap.source)})
        ratios += [row.measured / without.predict(row.parameters, row.static) for row in out]
    return tuple(ratios)


def _identity(parameters: Case, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, repr(parameters[name])) for name in names)


def _whole(value: Any) -> int:
    """A prediction in bytes. Raises BadInput where there is none: a file may hold any numbers."""
    if not math.isfinite(value):
        raise BadInput("the fitted campaign gives no number of bytes here; fit it again.")
    return round(float(value))


def _mape(rows: Sequence[GapRow], estimates: Sequence[float]) -> float:
    errors = [abs(one / row.measured - 1) for row, one in zip(rows, estimates, strict=True)]
    return sum(errors) / len(errors)


GAP_SCHEMA = 4
"""In 1, SGV on a CPU counted the temporaries of foreach kernels, which a CPU does not run; in 2 it counted none. Up to
3 the Bayesian model was a Gaussian process."""
_KIND = "oomcast gap"
_FILE = FittedFile(_KIND, GAP_SCHEMA, "oomcast campaign fit", "campaign")


def write_gap(gap: Gap, path: str | os.PathLike[str]) -> Path:
    """Write it to a file, which is replaced in one step: a reader never meets half of it."""
    return _FILE.write({"kind": _KIND, "schema": GAP_SCHEMA, **_plain(gap)}, Path(path))


def _plain(gap: Gap) -> dict[str, Any]:
    return {
        **{name: getattr(gap, name) for name in ("campaign", "template", "framework", "device", "steps", "features")},
        "factors": {factor.name: list(factor.levels) for factor in gap.factors},
        "fixed": dict(gap.fixed),
        "environment": dict(gap.environment),
        "versions": dict(gap.versions),
        "graph": gap.graph,
        "digests": dict(gap.digests),
        "source": _plain(gap.source) if gap.source is not None else None,
        "gap": {name: _model_as_plain(model) for name, model in gap.models.items()},
        "direct": json.loads(gap.direct.to_json()),
        "ratios": list(gap.ratios),
        "rows": [
            {
                "key": row.key,
                "role": row.role,
                "parameters": dict(row.parameters),
                "static": row.static.as_dict(),
                "measured": row.measured,
                "seconds": row.seconds,
            }
            for row in gap.rows
        ],
    }


def _model_as_plain(model: GapModel) -> dict[str, Any]:
    if isinstance(model, AveragedPolynomial):
        return model.to_plain()
    plain: dict[str, Any] = json.loads(model.to_json())
    return plain


def _model_from_plain(plain: Mapping[str, Any]) -> GapModel:
    if plain.get("kind") != "polynomial":
        return AveragedPolynomial.from_plain(plain)
    return PolynomialRegression.from_json(json.dumps(plain))


def read_gap(path: str | os.PathLike[str]) -> Gap:
    """Read what `write_gap` wrote; a file that is damaged or of another kind raises UnreadableFile."""
    return _FILE.read(Path(path), _gap)


def _gap(plain: Mapping[str, Any]) -> Gap:
    models = {str(name): _model_from_plain(model) for name, model in plain["gap"].items() if name in MODELS}
    if plain["features"] not in models:
        raise ValueError("the chosen model is missing")
    gap = Gap(
        **{name: str(plain[name]) for name in ("campaign", "template", "framework", "device", "features")},
        steps=int(plain["steps"]),
        factors=tuple(Factor(str(name), tuple(map(_value, levels))) for name, levels in plain["factors"].items()),
        fixed={str(name): _value(value) for name, value in plain["fixed"].items()},
        environment=dict(plain["environment"]),
        versions={str(name): str(version) for name, version in plain["versions"].items()},
        rows=tuple(map(_row, plain["rows"])),
        models=models,
        direct=PolynomialRegression.from_json(json.dumps(plain["direct"])),
        ratios=tuple(map(_ratio, plain["ratios"])),
        graph=str(plain.get("graph", "torch")),
        digests={str(name): str(digest) for name, digest in plain.get("digests", {}).items()},
        source=_gap(plain["source"]) if plain.get("source") is not None else None,
    )
    gap.mape(gap.rows)  # models, factors and rows must belong together
    for factor in gap.factors:
        if not any(row.parameters[factor.name] in factor.levels for row in gap.runs):
            raise ValueError(f"no run is at a level of {factor.name}")
    return gap


def _row(plain: Mapping[str, Any]) -> GapRow:
    if plain["role"] not in ("array", "held_out", "adaptive"):
        raise ValueError(f"no role is called {plain['role']!r}")
    return GapRow(
        key=str(plain["key"]),
        role=cast(Any, plain["role"]),
        parameters={str(name): _value(value) for name, value in plain["parameters"].items()},
        static=StaticValue(**{name: _bytes(plain["static"][name]) for name in ("total", "parameters", "largest")}),
        measured=_bytes(plain["measured"]),
        seconds=float(plain["seconds"]),
    )


_LARGEST_VALUE = 1 << 62


def _value(value: Any) -> Value:
    if not isinstance(value, (int, float, str, bool)):
        raise TypeError(f"{value!r} is no value of a parameter")
    if not isinstance(value, str) and not -_LARGEST_VALUE < value < _LARGEST_VALUE:  # nor is a NaN below anything
        raise ValueError(f"{value!r} is no value of a parameter")
    return value


def _bytes(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError(f"{value!r} is no number of bytes")
    return value


def _ratio(value: Any) -> float:
    ratio = float(value)
    if not (math.isfinite(ratio) and ratio > 0):
        raise ValueError(f"{value!r} is no ratio")
    return ratio
