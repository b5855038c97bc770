"""What is done with a whole campaign: propose its factors, rank them before anything runs, and measure its cases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput, OomcastError
from ..measure import CaseSpec, Conditions, Outcome, Progress, Selection, Store, engines, run_campaign
from .bayesian import average_polynomials, next_row
from .campaign_file import Campaign
from .campaign_plan import CampaignPlan, case_spec, next_campaign_case, open_cases, plan_campaign
from .factors import Case, Effect, Factor, Value, encode, main_effects
from .gap import BAYESIAN, gap_bounds, gap_variables, graph_of
from .polynomial import PolynomialRegression
from .seeds import Seed
from .static_figures import CPU, StaticValue, case_trace, static_value
from .templates import Parameter, complete

__all__ = [
    "ProposedFactor",
    "ScreenedFactors",
    "affordable",
    "measure_campaign",
    "most_telling",
    "propose_factors",
    "screen",
]

_LEAST_TO_FIT = 4
_CANDIDATES = 48
"""Configurations whose static figures a Bayesian design looks at for each choice."""


@dataclass(frozen=True)
class ScreenedFactors:
    """How much each factor moves the static estimate."""

    effects: tuple[Effect, ...]
    values: tuple[int, ...]
    """SGV of each case of the array."""


def screen(plan: CampaignPlan, progress: Callable[[int, int], None] | None = None) -> ScreenedFactors:
    """Rank a campaign's factors by captures of its array alone: nothing is run."""
    campaign = plan.campaign
    if campaign.device == "cuda":
        raise BadInput("a screening needs to know the GPU; write its name as the campaign's device, like a100-40gb.")
    cases = [case for case in plan.cases if case.role == "array" and case.repetition == 0]
    graph = graph_of(campaign)
    values = []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number, len(cases))
        seed = campaign.seed_of(case.parameters)
        trace = case_trace(seed.reference, case.parameters, case.steps, campaign.device, graph)
        values.append(static_value(trace, campaign.device).total)
    effects = main_effects(campaign.all_factors, [case.parameters for case in cases], values)
    return ScreenedFactors(effects, tuple(values))


@dataclass(frozen=True)
class ProposedFactor:
    """A parameter that static analysis found to move memory, with levels at which the job can be captured."""

    factor: Factor
    values: tuple[int, ...]
    """SGV at each level, the other parameters as they are written."""

    @property
    def effect(self) -> float:
        """From the least to the most SGV, as a share of the most."""
        return 1 - min(self.values) / max(self.values)


_LEAST_EFFECT = 0.01
_LEVELS_AT_MOST, _FACTORS_AT_MOST = 4, 5
"""OA(16, 5, 4, 2) is the largest array of four levels that 16 runs have."""
_MOST_ON_CPU = 1 << 30
"""Bytes that the largest of a proposed campaign's cases should hold on a CPU: its runs then take seconds."""


def propose_factors(
    seed: Seed, framework: str, device: str, progress: Callable[[int, int], None] | None = None
) -> tuple[dict[str, Value], list[ProposedFactor]]:
    """Which parameters of a seed move its memory, and at which levels: by captures of one change at a time.

    Each number is tried at a quarter, a half and three quarters of what is written, a switch both ways. A level at
    which the job cannot be captured is left out, and so is a parameter that moves less than a hundredth. The first
    answer is the values that all captures shared: on a CPU the batch is halved until the job is small enough.
    """
    base: dict[str, Value] = {parameter.name: parameter.default for parameter in seed.parameters}
    highest = _sgv(seed, base, framework, device)
    while device == CPU and highest > _MOST_ON_CPU and int(base["batch_size"]) > 4:
        base["batch_size"] = int(base["batch_size"]) // 2
        highest = _sgv(seed, base, framework, device)
    found = []
    for number, parameter in enumerate(seed.parameters):
        if progress is not None:
            progress(number, len(seed.parameters))
        known: dict[Value, int] = {base[parameter.name]: highest}
        for level in _levels(parameter, base[parameter.name]):
            try:
                known.setdefault(level, _sgv(seed, {**base, parameter.name: level}, framework, device))
            except OomcastError:
                continue  # the job cannot be built so
        levels = sorted(known, key=lambda level: (isinstance(level, str), level))
        # Factors of four and of two levels share a small array; three would need every combination.
        levels = levels if len(levels) == _LEVELS_AT_MOST else [levels[0], levels[-1]] if len(levels) > 1 else levels
        proposed = ProposedFactor(Factor(parameter.name, tuple(levels)), tuple(known[level] for level in levels))
        if len(levels) > 1 and proposed.effect >= _LEAST_EFFECT:
            found.append(proposed)
    return base, sorted(found, key=lambda one: -one.effect)[:_FACTORS_AT_MOST]


def affordable(seed: Seed, factors: Sequence[Factor], framework: str, device: str) -> tuple[Factor, ...]:
    """The factors with levels halved, the batch's first, until the largest case is small enough for a CPU."""
    shrunk = {factor.name: factor for factor in factors}
    known = {parameter.name: parameter for parameter in seed.parameters}
    order = sorted(shrunk, key=lambda name: (name != "batch_size", -float(max(map(float, shrunk[name].levels)))))
    for name in [name for _ in range(4) for name in order] if device == CPU else []:
        top = {one.name: max(one.levels, key=float) for one in shrunk.values()}
        if _sgv(seed, complete(seed, top), framework, device) <= _MOST_ON_CPU:
            break
        halved: list[Value] = [
            float(level) / 2 if isinstance(level, float) else max(1, int(level) // 2) for level in shrunk[name].levels
        ]
        different = len(set(halved)) == len(halved)
        if different and all(known[name].accepts(level) and _can_be(seed, shrunk, name, level) for level in halved):
            shrunk[name] = Factor(name, tuple(halved))
    return tuple(shrunk.values())


def _can_be(seed: Seed, factors: Mapping[str, Factor], name: str, level: Value) -> bool:
    """Whether a network with this level can be built, with all other factors at their least or at their most."""
    ends = ({one.name: end(one.levels, key=float) for one in factors.values()} for end in (min, max))
    return any(seed.check({**end, name: level}) is None for end in ends)


def _sgv(seed: Seed, values: Mapping[str, Value], framework: str, device: str) -> int:
    return static_value(case_trace(seed.reference, values, 2, device, framework), device).total


def _levels(parameter: Parameter, value: Value) -> list[Value]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str):
        return [choice for choice in parameter.choices if choice != value]
    tried: list[Value] = [value * share for share in (0.25, 0.5, 0.75)]
    if isinstance(value, int):
        tried = sorted({max(1, round(float(level))) for level in tried} - {value})
    return [level for level in tried if parameter.accepts(level)]


def measure_campaign(
    campaign: Campaign,
    store: Store,
    engine: engines.Engine | None = None,
    *,
    conditions: Conditions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> int:
    """Measure what has no result yet, and return how many this run has measured.

    An adaptive plan goes on where the polynomial of what is measured so far is least sure, a Bayesian one where a run
    lowers the expected error most; the choices are in the store, so that a run that was killed goes on with them.
    """
    plan = plan_campaign(campaign)
    options: dict[str, Any] = {
        "conditions": conditions,
        "progress": progress,
        "total_seconds": campaign.limits.total_seconds,
    }
    cases = [*plan.cases, *_chosen_before(campaign, store)]
    measured = run_campaign(cases, store, engine, **options)
    wanted = len(plan.cases) + plan.plan.to_come
    choose = _BayesianChoice(campaign).next if campaign.method == BAYESIAN else _next
    while plan.plan.to_come and len(cases) < wanted and (case := choose(campaign, cases, store)) is not None:
        cases.append(case)
        here = run_campaign(cases, store, engine, **options)
        measured += here
        if not here and store.states([case.key]).get(case.key) != "done":
            break  # the campaign's time is over
    return measured


def _chosen_before(campaign: Campaign, store: Store) -> list[CaseSpec]:
    names = {seed.name for seed in campaign.seeds}
    chosen = store.measurements(Selection(campaign=campaign.name, role="adaptive"))
    return [measurement.case for measurement in chosen if measurement.case.template in names]


def _measured(campaign: Campaign, cases: Sequence[CaseSpec], store: Store) -> list[tuple[CaseSpec, int]]:
    peaks = {
        one.case.key: one.peak_bytes
        for one in store.measurements(Selection(campaign=campaign.name, outcome=Outcome.OK))
    }
    return [(case, peaks[case.key]) for case in cases if case.role != "held_out" and case.key in peaks]


def _varied(campaign: Campaign, case: CaseSpec) -> dict[str, Value]:
    return {factor.name: case.parameters[factor.name] for factor in campaign.all_factors}


def _next(campaign: Campaign, cases: Sequence[CaseSpec], store: Store) -> CaseSpec | None:
    done: list[Case] = [_varied(campaign, case) for case in cases if case.role != "held_out"]
    measured = [(_varied(campaign, case), peak) for case, peak in _measured(campaign, cases, store)]
    if len(measured) < _LEAST_TO_FIT:
        return next_campaign_case(campaign, done)
    columns, variables = encode(campaign.all_factors, [case for case, _ in measured])
    model = PolynomialRegression(relative=True).fit(variables, [float(peak) for _, peak in measured], columns)

    def uncertainty(candidates: Sequence[Case]) -> list[float]:
        return [float(one) for one in model.predict_variance(encode(campaign.all_factors, candidates)[1])]

    return next_campaign_case(campaign, done, uncertainty)


def most_telling(
    factors: Sequence[Factor],
    measured: Sequence[tuple[Case, StaticValue, int]],
    candidates: Sequence[tuple[Case, StaticValue]],
) -> int:
    """The number of the candidate that an average of polynomials would learn most of the Gap from.

    `measured` are cases with their static figures and peaks; static figures need no run, so candidates have them too.
    """
    cases = [*(case for case, _, _ in measured), *(case for case, _ in candidates)]
    static = [*(figures for _, figures, _ in measured), *(figures for _, figures in candidates)]
    names, variables = gap_variables(factors, cases, static, BAYESIAN)
    peaks = [float(peak) for _, _, peak in measured]
    gaps = [peak - figures.total for _, figures, peak in measured]
    learnt = variables[: len(measured)]
    model = average_polynomials(learnt, gaps, names, peaks, len(StaticValue.NAMES), gap_bounds(factors, static))
    rest = variables[len(measured) :]
    expected = zip(candidates, model.predict(rest), strict=True)
    return next_row(model, rest, [max(figures.total + float(gap), 1.0) for (_, figures), gap in expected])


class _BayesianChoice:
    """The next case by averaged polynomials of the Gap over the factors and the trace's figures, which need no run."""

    def __init__(self, campaign: Campaign) -> None:
        self._graph = graph_of(campaign)
        self._figures: dict[str, StaticValue] = {}

    def next(self, campaign: Campaign, cases: Sequence[CaseSpec], store: Store) -> CaseSpec | None:
        done: list[Case] = [_varied(campaign, case) for case in cases if case.role != "held_out"]
        candidates = open_cases(campaign, done, _CANDIDATES)
        measured = _measured(campaign, cases, store)
        if not candidates or len(measured) < 2:
            return next_campaign_case(campaign, done)
        known = [
            (_varied(campaign, case), self._static(campaign, _varied(campaign, case), store), peak)
            for case, peak in measured
        ]
        rest = [(case, self._static(campaign, case, store)) for case in candidates]
        return case_spec(campaign, candidates[most_telling(campaign.all_factors, known, rest)], "adaptive", 0)

    def _static(self, campaign: Campaign, case: Case, store: Store) -> StaticValue:
        parameters = campaign.parameters(case)
        place = repr(sorted(parameters.items()))
        if place not in self._figures:
            device = campaign.device
            if device == "cuda":
                device = next(store.measurements(Selection(campaign=campaign.name))).environment.gpu
            trace = case_trace(campaign.seed_of(case).reference, parameters, campaign.steps, device, self._graph)
            self._figures[place] = static_value(trace, device)
        return self._figures[place]
