"""A campaign as a whole: which factors matter before anything runs, and its runs, those chosen on the way too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..design import (
    Campaign,
    CampaignPlan,
    Case,
    CaseSpec,
    Effect,
    encode,
    main_effects,
    next_campaign_case,
    plan_campaign,
)
from ..errors import BadInput
from ..learn import PolynomialRegression
from ..measure import Conditions, Outcome, Progress, Selection, Store, engines, run_campaign
from ._static_value import case_trace, static_value

__all__ = ["ScreenedFactors", "measure_campaign", "screen"]

_LEAST_TO_FIT = 4


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
    values = []
    for number, case in enumerate(cases):
        if progress is not None:
            progress(number, len(cases))
        trace = case_trace(case.template, case.parameters, case.steps, campaign.device)
        values.append(static_value(trace, campaign.device).total)
    effects = main_effects(campaign.all_factors, [case.parameters for case in cases], values)
    return ScreenedFactors(effects, tuple(values))


def measure_campaign(
    campaign: Campaign,
    store: Store,
    engine: engines.Engine | None = None,
    *,
    conditions: Conditions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> int:
    """Measure what has no result yet, and return how many this run has measured.

    An adaptive plan goes on where the polynomial of what is measured so far is least sure; its choices are in the
    store, so that a run that was killed goes on with them.
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
    while plan.plan.to_come and len(cases) < wanted and (case := _next(campaign, cases, store)) is not None:
        cases.append(case)
        here = run_campaign(cases, store, engine, **options)
        measured += here
        if not here and store.states([case.key]).get(case.key) != "done":
            break  # the campaign's time is over
    return measured


def _chosen_before(campaign: Campaign, store: Store) -> list[CaseSpec]:
    chosen = store.measurements(Selection(campaign=campaign.name, role="adaptive", template=campaign.template))
    return [measurement.case for measurement in chosen]


def _next(campaign: Campaign, cases: Sequence[CaseSpec], store: Store) -> CaseSpec | None:
    names = [factor.name for factor in campaign.all_factors]
    learnt = [case for case in cases if case.role != "held_out"]
    done: list[Case] = [{name: case.parameters[name] for name in names} for case in learnt]
    peaks = {
        one.case.key: one.peak_bytes
        for one in store.measurements(Selection(campaign=campaign.name, outcome=Outcome.OK))
    }
    measured = [(case, peaks[spec.key]) for case, spec in zip(done, learnt, strict=True) if spec.key in peaks]
    if len(measured) < _LEAST_TO_FIT:
        return next_campaign_case(campaign, done)
    columns, variables = encode(campaign.all_factors, [case for case, _ in measured])
    model = PolynomialRegression(relative=True).fit(variables, [float(peak) for _, peak in measured], columns)

    def uncertainty(candidates: Sequence[Case]) -> list[float]:
        return [float(one) for one in model.predict_variance(encode(campaign.all_factors, candidates)[1])]

    return next_campaign_case(campaign, done, uncertainty)
