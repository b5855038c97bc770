"""From a campaign to its cases: algorithm 1 of the TBEM paper.

The plan's rows (`Orthogonal`) become cases of the seeds (`mutation`), are filtered by the specification, and rendered
as source (`toString`). Rows that the specification rejects are replaced, so that the array stays as even as it can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import BadInput
from ...units import format_bytes
from ..measure import CaseSpec, Role, case_key
from .campaign_file import Campaign
from .factors import Case, Factor, Value
from .plans import Balance, Cost, Plan, make_plan, next_case, other_cases, repaired
from .specification import Rejection

__all__ = [
    "CampaignPlan",
    "RejectedCase",
    "campaign_cases",
    "case_spec",
    "next_campaign_case",
    "open_cases",
    "plan_campaign",
]


@dataclass(frozen=True)
class RejectedCase:
    """A configuration that cannot be built, and the condition of the specification that says so."""

    role: Role
    parameters: Mapping[str, Value]
    rejection: Rejection

    @property
    def process(self) -> str:
        return self.rejection.process

    @property
    def condition(self) -> str:
        return self.rejection.condition

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.parameters.items()) + f": {self.rejection}"


@dataclass(frozen=True)
class CampaignPlan:
    """What a campaign will run, known before anything runs."""

    campaign: Campaign
    plan: Plan
    cases: tuple[CaseSpec, ...]
    """Every repetition of every case: all of the first repetition, held-out cases last, then all of the second."""
    rejected: tuple[RejectedCase, ...]
    balance: Balance | None = None
    """What is left of the array's evenness, where the specification rejected some of its rows."""

    def cost(self, seconds_per_case: float | None = None) -> Cost:
        """Counts the cases that will run, those that an adaptive plan has still to choose too; not the rejected."""
        repetitions = self.campaign.repetitions
        cases = len(self.cases) // repetitions + self.plan.to_come
        seconds = None if seconds_per_case is None else cases * repetitions * seconds_per_case
        return replace(self.plan.cost(repetitions), cases=cases, seconds=seconds)


def plan_campaign(campaign: Campaign) -> CampaignPlan:
    """The cases that the specification lets through and, by name, those that it does not."""
    plan = _plan(campaign)
    rejected: list[RejectedCase] = []
    array = [case for case in plan.cases if _passes(campaign, case, "array", rejected)]
    balance = None
    if rejected and campaign.method not in ("full", "blocks"):
        array, balance = repaired(
            plan, array, lambda case: campaign.seed_of(case).check(_own(campaign, case), campaign.rules) is None
        )
    if not array:
        raise BadInput(
            f"campaign {campaign.name!r} has no case that can be built; the first that was rejected is {rejected[0]}."
        )
    _check_limit(campaign, array)
    held_out = list(_held_out(campaign, [*plan.cases, *array], rejected))
    roles: dict[Role, list[dict[str, Value]]] = {"array": array, "held_out": held_out}
    cases = [
        case_spec(campaign, case, role, repetition)
        for repetition in range(campaign.repetitions)
        for role, chosen in roles.items()
        for case in chosen
    ]
    return CampaignPlan(campaign, plan, tuple(cases), tuple(rejected), balance)


def campaign_cases(campaign: Campaign) -> tuple[CaseSpec, ...]:
    """The cases of a campaign; `plan_campaign` also tells which were rejected."""
    return plan_campaign(campaign).cases


def next_campaign_case(
    campaign: Campaign,
    done: Sequence[Case],
    uncertainty: Callable[[Sequence[Case]], Sequence[float]] | None = None,
) -> CaseSpec | None:
    """What a campaign should measure next, None when nothing is left. An array, too, can be added to in this way.

    `done` are the parameters of the cases that have run. Held-out configurations are never chosen, nor those that the
    specification rejects.
    """
    taken: list[Case] = [*done, *_held_out(campaign, _plan(campaign).cases, [])]
    while True:
        try:
            case = next_case(campaign.all_factors, taken, uncertainty, seed=campaign.seed)
        except BadInput:
            return None
        if _passes(campaign, case, "adaptive", []):
            return case_spec(campaign, case, "adaptive", 0)
        taken.append(case)


def open_cases(campaign: Campaign, done: Sequence[Case], most: int) -> list[dict[str, Value]]:
    """At most so many configurations that could be measured next: neither done, nor held out, nor rejected."""
    taken: list[Case] = [*done, *_held_out(campaign, _plan(campaign).cases, [])]
    found: list[dict[str, Value]] = []
    for case in other_cases(campaign.all_factors, taken, campaign.seed + 2):
        if len(found) == most:
            break
        if _passes(campaign, case, "adaptive", []):
            found.append(case)
    return found


def case_spec(campaign: Campaign, case: Mapping[str, Value], role: Role, repetition: int) -> CaseSpec:
    """One case with its rendered source; `case` gives its factors, or all its parameters."""
    device = "cpu" if campaign.device == "cpu" else "cuda"
    seed, parameters = campaign.seed_of(case), campaign.parameters(case)
    source = seed.case(_own(campaign, case), campaign.framework, campaign.steps, device)
    facts = (seed.name, parameters, campaign.framework, campaign.device, repetition, campaign.steps, source)
    return CaseSpec(
        key=case_key(*facts),
        campaign=campaign.name,
        role=role,
        template=seed.name,
        parameters=parameters,
        framework=campaign.framework,
        device=campaign.device,
        repetition=repetition,
        steps=campaign.steps,
        source=source,
    )


def _plan(campaign: Campaign) -> Plan:
    return make_plan(
        campaign.method,
        campaign.all_factors,
        strength=campaign.strength,
        runs=campaign.runs,
        seed=campaign.seed,
        blocks=campaign.blocks,
    )


def _own(campaign: Campaign, case: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters that the case's seed takes."""
    known = {parameter.name for parameter in campaign.seed_of(case).parameters}
    return {name: value for name, value in campaign.parameters(case).items() if name in known}


def _passes(campaign: Campaign, case: Case, role: Role, rejected: list[RejectedCase]) -> bool:
    """Whether the specification takes it; if it does not, there is an entry in `rejected`."""
    rejection = campaign.seed_of(case).check(_own(campaign, case), campaign.rules)
    if rejection is not None:
        rejected.append(RejectedCase(role, dict(case), rejection))
    return rejection is None


def _held_out(campaign: Campaign, taken: Sequence[Case], rejected: list[RejectedCase]) -> Iterator[dict[str, Value]]:
    levels = {factor.name: factor for factor in campaign.held_out_factors}
    factors: list[Factor] = [levels.get(factor.name, factor) for factor in campaign.all_factors]
    # Another stream than the plan's own, which may be random too.
    others = other_cases(factors, taken, campaign.seed + 1)
    count = 0
    while count < campaign.held_out:
        case = next(others, None)
        if case is None:
            raise BadInput(
                f"campaign {campaign.name!r} asks for {campaign.held_out} held-out cases, but only {count} other "
                "configurations are left; ask for fewer, or give other levels under [held_out_factors]."
            )
        if _passes(campaign, case, "held_out", rejected):
            count += 1
            yield case


def _check_limit(campaign: Campaign, cases: Sequence[Case]) -> None:
    limit = campaign.limits.bytes
    if limit is None or campaign.device != "cpu":
        return
    least = min(campaign.seed_of(case).least_bytes(_own(campaign, case), campaign.framework) for case in cases)
    if limit < least:
        raise BadInput(
            f"the limit of {format_bytes(limit)} (limits.bytes of campaign {campaign.name!r}) is below one case: the "
            f"smallest holds {format_bytes(least)} for its weights and gradients alone."
        )
