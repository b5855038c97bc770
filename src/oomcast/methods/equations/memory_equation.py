"""Memory as an equation of a workload's parameters, learnt from real runs of any stores.

The variables are the numeric parameters that vary among the runs, or what the simulated Timeline of each run's network
tells (`TRACE_FEATURES`), or both. With the Timeline's figures alone, networks of other templates can be told too.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...errors import BadInput, UnknownName
from ...estimation import QuantileCurve, group_curve
from ..tbem import TRACE_FEATURES, Value, case_trace, trace_features
from .symbolic import Equation, OnGeneration, SearchConfig, SymbolicRegression
from .symbolic.samples import SampledHull

if TYPE_CHECKING:
    from ..measure import Measurement, Selection, Store

__all__ = [
    "EQUATION_FEATURES",
    "UNKNOWN",
    "EquationRow",
    "Errors",
    "MemoryEquation",
    "Prediction",
    "RunsOrigin",
    "equation_rows",
    "fit_equation",
    "fit_equation_to",
    "measured_runs",
    "table_of",
    "traced_steps",
    "variables_of",
]

EQUATION_FEATURES = ("parameters", "timeline", "both")
UNKNOWN = "unknown"
"""The framework and the device of runs whose table does not tell them."""
_LEVELS = tuple(step / 200 for step in range(1, 200))
_INNER = 2 / 3
_NOTHING_KNOWN_BEYOND = 1.0
"""Error for each range beyond the samples, where these are too few to tell."""
_LEAST_BEYOND = 0.05
"""The same, where a fit to the smaller runs told the larger ones better than that."""
_DOUBLED = 2.0


@dataclass(frozen=True)
class EquationRow:
    """One measured run: what it was given, what its Timeline tells, and what it held."""

    key: str
    template: str
    parameters: Mapping[str, Value]
    """All parameters of the run's template."""
    figures: Mapping[str, float]
    """Figures of its simulated Timeline; empty where the equation is one of parameters alone."""
    measured: int
    kept_out: bool = False
    """Whether the run was kept out of the fit, to judge the equation by it."""


@dataclass(frozen=True)
class RunsOrigin:
    """What all runs behind an equation share."""

    campaigns: tuple[str, ...]
    framework: str
    device: str
    steps: int
    environment: Mapping[str, Any]

    @classmethod
    def of(cls, measured: Sequence[Measurement]) -> RunsOrigin:
        first = measured[0]
        return cls(
            campaigns=tuple(sorted({run.case.campaign for run in measured})),
            framework=first.case.framework,
            device=first.case.device,
            steps=first.case.steps,
            environment=first.environment.as_dict(),
        )


@dataclass(frozen=True)
class Errors:
    """How far estimates are from measured runs."""

    runs: int
    mape: float
    """Mean absolute percentage error, as a share; so are the next two."""
    median: float
    worst: float
    rmse: float
    """Root of the mean squared error, bytes."""
    r2: float
    """The share of the runs' variance that is explained; nan where they do not vary."""


@dataclass(frozen=True)
class Prediction:
    """What the equation says at one point, in bytes."""

    total: int
    low: int
    high: int
    coverage: float
    will_not_exceed: int
    distance: float
    """How far the point lies outside of the samples' hull, in units of their ranges; 0 inside."""


@dataclass(frozen=True)
class MemoryEquation:
    """A fitted equation with all that it was learnt from."""

    templates: tuple[str, ...]
    campaigns: tuple[str, ...]
    stores: tuple[str, ...]
    framework: str
    device: str
    steps: int
    features: str
    fixed: Mapping[str, Value]
    """Parameters that every run shares; with the Timeline's figures alone they need not hold at a prediction."""
    environment: Mapping[str, Any]
    """Versions, machine and allocator of the runs."""
    versions: Mapping[str, str]
    rows: tuple[EquationRow, ...]
    equation: Equation
    """The equation that answers: bytes as a function of the variables `names`."""
    front: tuple[Equation, ...]
    """All equations that no other one betters in both size and error, from which that was chosen."""
    ratios: tuple[float, ...]
    """Measured / estimated of each run that was learnt from, by a fit that had not seen it."""
    beyond: float
    """The largest error (logarithm of measured / estimated), for each range of distance from the samples, that a fit
    to the smaller runs made at larger ones."""
    search: Mapping[str, Any]
    seconds: float
    _hull: SampledHull = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hull", SampledHull([self.point(_values(row)) for row in self.learnt]))

    @property
    def names(self) -> tuple[str, ...]:
        return self.equation.names

    @property
    def learnt(self) -> tuple[EquationRow, ...]:
        return tuple(row for row in self.rows if not row.kept_out)

    @property
    def checks(self) -> tuple[EquationRow, ...]:
        return tuple(row for row in self.rows if row.kept_out)

    @property
    def ranges(self) -> dict[str, tuple[float, float]]:
        points = [self.point(_values(row)) for row in self.learnt]
        return {name: (min(values), max(values)) for name, *values in zip(self.names, *points, strict=True)}

    def point(self, values: Mapping[str, Any]) -> list[float]:
        """The variables' values in the equation's order; raises BadInput for one that is missing or no number."""
        numbers = []
        for name in self.names:
            if name not in values:
                needed = ", ".join(self.names)
                raise BadInput(f"the equation needs {name}; give all of {needed}, as NAME=VALUE.")
            value = values[name]
            if isinstance(value, str) or not math.isfinite(value):
                raise BadInput(f"{name} must be a finite number, not {value!r}.")
            numbers.append(float(value))
        return numbers

    def at(self, values: Mapping[str, Any]) -> int:
        predicted = float(self.equation.predict([self.point(values)])[0])
        if not math.isfinite(predicted):  # a file may hold any numbers
            raise BadInput("the equation gives no number of bytes here; fit it again.")
        return max(round(predicted), 1)

    def distance(self, values: Mapping[str, Any]) -> float:
        """How far a point lies outside of the samples' hull, in units of their ranges; 0 inside."""
        point = self.point(values)
        distance = self._hull.distance(point)
        if math.isinf(distance):
            name = next(name for name, value in zip(self.names, point, strict=True) if value <= 0)
            raise BadInput(f"{name} must be above 0, as it was in every sample.")
        return distance

    def predict(self, values: Mapping[str, Any], coverage: float = 0.95) -> Prediction:
        """Beyond the samples' hull the interval is wider: doubled, and more with the distance."""
        total, distance = self.at(values), self.distance(values)
        curve = self.curve()
        assured = min(coverage, self.most_coverage())
        if assured <= 0:
            raise BadInput(f"the coverage must be above 0, not {coverage:g}.")
        side, more = (1 - assured) / 2, self.error_beyond(distance)

        def bound(level: float) -> int:
            error = math.log(curve.at(level))
            if more:
                error = _DOUBLED * error + math.copysign(more, level - 0.5)
            return round(total * math.exp(error))

        return Prediction(
            total,
            min(bound(side), total),
            max(bound(1 - side), total),
            assured,
            max(bound(max(assured, 0.5)), total),
            distance,
        )

    def chance_above(self, total: int, limit: int, distance: float) -> float:
        """The probability that a run of that estimate holds more than the limit."""
        room, more = math.log(max(limit, 1) / max(total, 1)), self.error_beyond(distance)
        if more:
            room = (room - math.copysign(min(more, abs(room)), room)) / _DOUBLED
        return round(self.curve().above(math.exp(room)), 6)

    def error_beyond(self, distance: float) -> float:
        """What that distance from the samples adds to the error (a logarithm); 0 inside their hull."""
        return max(self.beyond, _LEAST_BEYOND) * distance

    def curve(self) -> QuantileCurve:
        """The distribution of measured / estimated, each run by a fit that had not seen it."""
        return group_curve(self.ratios, [_identity(row) for row in self.learnt], _LEVELS)

    def most_coverage(self) -> float:
        """The highest coverage that so few runs can promise."""
        curve = self.curve()
        return 1 - 2 * max(curve.levels[0], 1 - curve.levels[-1])

    @property
    def training_error(self) -> float:
        return self.mape(self.learnt)

    @property
    def kept_out_error(self) -> float:
        """The mean absolute percentage error on the runs learnt from, each by a fit that had not seen it."""
        return sum(abs(1 / ratio - 1) for ratio in self.ratios) / len(self.ratios)

    def errors(self, rows: Sequence[EquationRow]) -> Errors | None:
        """On these runs; None of none."""
        if not rows:
            return None
        pairs = [(self.at(_values(row)), row.measured) for row in rows]
        shares = [abs(found / truth - 1) for found, truth in pairs]
        squares = sum((found - truth) ** 2 for found, truth in pairs)
        mean = sum(truth for _, truth in pairs) / len(pairs)
        spread = sum((truth - mean) ** 2 for _, truth in pairs)
        return Errors(
            runs=len(pairs),
            mape=sum(shares) / len(shares),
            median=statistics.median(shares),
            worst=max(shares),
            rmse=math.sqrt(squares / len(pairs)),
            r2=1 - squares / spread if spread else math.nan,
        )

    def mape(self, rows: Sequence[EquationRow]) -> float:
        """The mean absolute percentage error at these runs, as a share; nan of none."""
        if not rows:
            return math.nan
        return sum(abs(self.at(_values(row)) / row.measured - 1) for row in rows) / len(rows)


def fit_equation(
    stores: Sequence[Store],
    select: Selection | None = None,
    *,
    features: str = "parameters",
    variables: Sequence[str] | None = None,
    config: SearchConfig | None = None,
    keep_out: float = 0.0,
    before: MemoryEquation | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_generation: OnGeneration | None = None,
) -> MemoryEquation:
    """Learn from every finished run that the selection takes.

    `variables` names what the equation may use; without it, all numeric parameters that vary. `keep_out` is the share
    of runs, drawn at random, that only judge. An earlier fit `before` spares the captures that it made. The published
    search tells `on_generation` how far it is, and ends with what it has where that answers False.
    """
    from ..measure import Selection

    measured = measured_runs(stores, select or Selection())
    rows = equation_rows(measured, features, before, progress)
    return fit_equation_to(
        rows,
        RunsOrigin.of(measured),
        stores=[store.name for store in stores],
        features=features,
        variables=variables,
        config=config,
        keep_out=keep_out,
        on_generation=on_generation,
    )


def equation_rows(
    measured: Sequence[Measurement],
    features: str,
    before: MemoryEquation | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[EquationRow, ...]:
    """The runs with the Timeline's figures, where these are asked for."""
    if features not in EQUATION_FEATURES:
        raise UnknownName("kind of features", features, EQUATION_FEATURES, f"It is {', '.join(EQUATION_FEATURES)}.")
    known = {row.key: row.figures for row in before.rows if row.figures} if before is not None else {}
    if before is not None and before.versions != _versions():
        known = {}
    rows = []
    for number, run in enumerate(measured):
        case = run.case
        if features != "parameters" and case.key not in known:
            if progress is not None:
                progress(number, len(measured))
            device = run.environment.gpu if case.device == "cuda" else case.device
            trace = case_trace(case.template, case.parameters, traced_steps(case.steps), device)
            known[case.key] = trace_features(trace, device)
        figures = known[case.key] if features != "parameters" else {}
        rows.append(EquationRow(case.key, case.template, dict(case.parameters), figures, run.peak_bytes))
    return tuple(rows)


def traced_steps(steps: int) -> int:
    """The Timeline's peak is that of a step that finds the optimizer's state: the second one."""
    return max(steps, 2)


def fit_equation_to(
    rows: Sequence[EquationRow],
    origin: RunsOrigin,
    *,
    stores: Sequence[str],
    features: str = "parameters",
    variables: Sequence[str] | None = None,
    config: SearchConfig | None = None,
    keep_out: float = 0.0,
    on_generation: OnGeneration | None = None,
) -> MemoryEquation:
    """`fit_equation`, of runs that were read before."""
    config = config or SearchConfig()
    rows = _with_kept_out(rows, keep_out, config.seed)
    learnt = [row for row in rows if not row.kept_out]
    names = variables_of(rows, features, variables)
    fitted = _fit(learnt, names, config, on_generation)
    table, measured_bytes = table_of(learnt, names)
    return MemoryEquation(
        templates=tuple(sorted({row.template for row in rows})),
        campaigns=origin.campaigns,
        stores=tuple(stores),
        framework=origin.framework,
        device=origin.device,
        steps=origin.steps,
        features=features,
        fixed=_fixed(rows, names),
        environment=origin.environment,
        versions=_versions(),
        rows=tuple(rows),
        equation=fitted.equation_,
        front=tuple(equation.rounded(table, measured_bytes) for equation in fitted.front_),
        ratios=tuple(1 + float(residual) for residual in fitted.residuals_),
        beyond=_error_beyond(learnt, names, config, on_generation),
        search=asdict(config),
        seconds=round(fitted.seconds_, 3),
    )


def _versions() -> dict[str, str]:
    return {"oomcast": __version__}


def measured_runs(stores: Sequence[Store], select: Selection) -> list[Measurement]:
    """Finished runs, each once, that belong together."""
    from ..measure import Outcome

    wanted = replace(select, outcome=Outcome.OK)
    by_key = {run.case.key: run for store in stores for run in store.measurements(wanted)}
    measured = list(by_key.values())
    if not measured:
        where = ", ".join(store.name for store in stores)
        raise BadInput(f"no finished run in {where} is what was asked for; see oomcast campaign run.")
    places: dict[str, set[str]] = {
        "frameworks": {run.case.framework for run in measured},
        "devices": {run.case.device for run in measured},
        "numbers of steps": {str(run.case.steps) for run in measured},
        "settings": {
            " ".join(filter(None, (run.environment.version, run.environment.allocator, run.environment.gpu)))
            for run in measured
        },
    }
    for what, values in places.items():
        if len(values) > 1:
            described = "; ".join(sorted(values))
            raise BadInput(f"these runs were made under different {what} ({described}); select runs of one of them.")
    return measured


def variables_of(rows: Sequence[EquationRow], features: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    """The names that the equation may use, each a number that varies."""
    samples = [_values(row) for row in rows]
    shared = [name for name in samples[0] if all(name in values for values in samples)]
    varying = [name for name in shared if len({values[name] for values in samples}) > 1]
    if asked is not None:
        for name in asked:
            if name not in shared:
                raise UnknownName("variable", name, shared, f"All runs have {', '.join(shared)}.")
            if name not in varying:
                raise BadInput(
                    f"{name} is {samples[0][name]} in every run, so its effect cannot be learnt: vary it or leave it "
                    "out."
                )
        return tuple(asked)
    of_timeline = [name for name in varying if name in TRACE_FEATURES]
    if features == "timeline":
        return _checked(of_timeline, "the Timeline's figures are")
    if len({row.template for row in rows}) > 1:
        raise BadInput(
            f"these runs are of {', '.join(sorted({row.template for row in rows}))}; select one with --template, or "
            "learn from what their Timelines have in common: --features timeline."
        )
    of_parameters = [name for name in varying if name not in TRACE_FEATURES]
    for name in of_parameters:
        if words := [str(values[name]) for values in samples if isinstance(values[name], str)]:
            raise BadInput(
                f"{name} varies among these runs and is no number; select one of its values, as --where "
                f"{name}={words[0]}."
            )
    return _checked([*of_parameters, *(of_timeline if features == "both" else [])], "every parameter is")


def _checked(names: Sequence[str], what: str) -> tuple[str, ...]:
    if not names:
        raise BadInput(f"{what} the same in every run, so no equation can be learnt; measure runs that differ.")
    return tuple(names)


def _fixed(rows: Sequence[EquationRow], names: Sequence[str]) -> dict[str, Value]:
    first = rows[0].parameters
    return {
        name: value
        for name, value in first.items()
        if name not in names and all(row.parameters.get(name) == value for row in rows)
    }


def _with_kept_out(rows: Sequence[EquationRow], share: float, seed: int) -> tuple[EquationRow, ...]:
    if not 0 <= share < 1:
        raise BadInput(f"the share of runs to keep out must be from 0 to below 1, not {share:g}.")
    identities = sorted({_identity(row) for row in rows})
    out = set(random.Random(seed).sample(identities, round(share * len(identities))))
    return tuple(replace(row, kept_out=_identity(row) in out) for row in rows)


def _fit(
    rows: Sequence[EquationRow], names: Sequence[str], config: SearchConfig, on_generation: OnGeneration | None
) -> SymbolicRegression:
    try:
        return SymbolicRegression(config=config).fit(*table_of(rows, names), names, on_generation)
    except ValueError as error:
        raise BadInput(f"these runs give no equation: {str(error).rstrip('.')}.") from None


def _error_beyond(
    rows: Sequence[EquationRow], names: Sequence[str], config: SearchConfig, on_generation: OnGeneration | None
) -> float:
    """How a fit to the smaller runs fails at the larger ones: error over distance, the worst of them."""
    ordered = sorted(rows, key=lambda row: row.measured)
    count = round(_INNER * len(ordered))
    try:
        inner = _fit(ordered[:count], names, config, on_generation).equation_
    except BadInput:
        return _NOTHING_KNOWN_BEYOND
    table, _ = table_of(ordered, names)
    hull = SampledHull(table[:count])
    worst = 0.0
    for row, point in zip(ordered[count:], table[count:], strict=True):
        distance = hull.distance(point)
        if 0 < distance < math.inf:
            # Near the hull the error is that of the inside; over a small distance it would tell nonsense.
            error = abs(math.log(row.measured / max(float(inner.predict([point])[0]), 1.0)))
            worst = max(worst, error / max(distance, 0.1))
    return worst


def table_of(rows: Sequence[EquationRow], names: Sequence[str]) -> tuple[list[list[float]], list[float]]:
    variables = [[float(_values(row)[name]) for name in names] for row in rows]
    return variables, [float(row.measured) for row in rows]


def _values(row: EquationRow) -> dict[str, Any]:
    return {**row.parameters, **row.figures}


def _identity(row: EquationRow) -> str:
    return row.template + repr(sorted(row.parameters.items()))
