"""From a campaign to its cases: the plan's rows as networks, filtered by the specification, rendered as source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..errors import BadInput
from ..units import format_bytes
from ._campaign import Campaign
from ._cases import CaseSpec, Role, case_key
from ._factors import Case, Factor, Value
from ._plans import Cost, Plan, make_plan, next_case, other_cases
from ._template import Template, complete
from .spec import Rejection, check_network
from .templates import TEMPLATES, Network, count_parameters, render

__all__ = [
    "CampaignPlan",
    "RejectedCase",
    "campaign_cases",
    "case_spec",
    "next_campaign_case",
    "plan_campaign",
]

_BYTES_PER_PARAMETER = 8
"""A trained parameter and its gradient in fp32: less than that no training step holds."""


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

    def cost(self, seconds_per_case: float | None = None) -> Cost:
        """Counts the cases that will run, those that an adaptive plan has still to choose too; not the rejected."""
        repetitions = self.campaign.repetitions
        cases = len(self.cases) // repetitions + self.plan.to_come
        seconds = None if seconds_per_case is None else cases * repetitions * seconds_per_case
        return replace(self.plan.cost(repetitions), cases=cases, seconds=seconds)


def plan_campaign(campaign: Campaign, templates: Mapping[str, Template] = TEMPLATES) -> CampaignPlan:
    """The cases that the specification lets through and, by name, those that it does not."""
    plan = _plan(campaign)
    template = templates[campaign.template]
    rejected: list[RejectedCase] = []
    array = [
        made for case in plan.cases if (made := _accepted(campaign, template, case, "array", rejected)) is not None
    ]
    if not array:
        raise BadInput(
            f"campaign {campaign.name!r} has no case that can be built; the first that was rejected is {rejected[0]}."
        )
    _check_limit(campaign, [network for _, network in array])
    held_out = list(_held_out(campaign, template, plan.cases, rejected))
    roles: dict[Role, list[tuple[dict[str, Value], Network]]] = {"array": array, "held_out": held_out}
    cases = [
        case_spec(campaign, parameters, role, repetition, network=network)
        for repetition in range(campaign.repetitions)
        for role, made in roles.items()
        for parameters, network in made
    ]
    return CampaignPlan(campaign, plan, tuple(cases), tuple(rejected))


def campaign_cases(campaign: Campaign, templates: Mapping[str, Template] = TEMPLATES) -> tuple[CaseSpec, ...]:
    """The cases of a campaign; `plan_campaign` also tells which were rejected."""
    return plan_campaign(campaign, templates).cases


def next_campaign_case(
    campaign: Campaign,
    done: Sequence[Case],
    uncertainty: Callable[[Sequence[Case]], Sequence[float]] | None = None,
    templates: Mapping[str, Template] = TEMPLATES,
) -> CaseSpec | None:
    """What a campaign should measure next, None when nothing is left. An array, too, can be added to in this way.

    `done` are the parameters of the cases that have run. Held-out configurations are never chosen, nor those that the
    specification rejects.
    """
    template = templates[campaign.template]
    held_out = _held_out(campaign, template, _plan(campaign).cases, [])
    taken: list[Case] = [*done, *(parameters for parameters, _ in held_out)]
    while True:
        try:
            case = next_case(campaign.all_factors, taken, uncertainty, seed=campaign.seed)
        except BadInput:
            return None
        if (made := _accepted(campaign, template, case, "adaptive", [])) is not None:
            return case_spec(campaign, made[0], "adaptive", 0, network=made[1])
        taken.append(case)


def case_spec(
    campaign: Campaign, parameters: Mapping[str, Value], role: Role, repetition: int, *, network: Network
) -> CaseSpec:
    """One case with its rendered source."""
    device = "cpu" if campaign.device == "cpu" else "cuda"
    source = render(network, campaign.framework, steps=campaign.steps, device=device)
    facts = (campaign.template, parameters, campaign.framework, campaign.device, repetition, campaign.steps, source)
    return CaseSpec(
        key=case_key(*facts),
        campaign=campaign.name,
        role=role,
        template=campaign.template,
        parameters=dict(parameters),
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


def _accepted(
    campaign: Campaign, template: Template, case: Case, role: Role, rejected: list[RejectedCase]
) -> tuple[dict[str, Value], Network] | None:
    """All parameters and the network; None, and an entry in `rejected`, if the specification does not take it."""
    parameters = complete(template, {**campaign.fixed, **case})
    network = template.network(parameters)
    rejection = check_network(network)
    if rejection is not None:
        rejected.append(RejectedCase(role, dict(case), rejection))
        return None
    return parameters, network


def _held_out(
    campaign: Campaign, template: Template, taken: Sequence[Case], rejected: list[RejectedCase]
) -> Iterator[tuple[dict[str, Value], Network]]:
    levels = {factor.name: factor for factor in campaign.held_out_factors}
    factors: list[Factor] = [levels.get(factor.name, factor) for factor in campaign.all_factors]
    # Another stream than the plan's own, which may be random too.
    others = other_cases(factors, taken, campaign.seed + 1)
    accept = partial(_accepted, campaign, template, role="held_out", rejected=rejected)
    found = 0
    while found < campaign.held_out:
        case = next(others, None)
        if case is None:
            raise BadInput(
                f"campaign {campaign.name!r} asks for {campaign.held_out} held-out cases, but only {found} other "
                "configurations are left; ask for fewer, or give other levels under [held_out_factors]."
            )
        if (made := accept(case)) is not None:
            found += 1
            yield made


def _check_limit(campaign: Campaign, networks: Sequence[Network]) -> None:
    limit = campaign.limits.bytes
    if limit is None or campaign.device != "cpu":
        return
    least = min(count_parameters(network, campaign.framework) for network in networks) * _BYTES_PER_PARAMETER
    if limit < least:
        raise BadInput(
            f"the limit of {format_bytes(limit)} (limits.bytes of campaign {campaign.name!r}) is below one case: the "
            f"smallest holds {format_bytes(least)} for its weights and gradients alone."
        )
