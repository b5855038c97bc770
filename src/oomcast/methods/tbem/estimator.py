"""The estimator `tbem`: the static estimate, and the Gap that a campaign of real runs has found beyond it.

The command line asks every estimator for its options, so that importing this module must cost nothing: what computes is
taken from the room, which loads it when it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomcast.methods import tbem

from ...errors import BadInput
from ...estimation import Estimate, Estimator
from ...spec import Job, Spec, Text, option

if TYPE_CHECKING:
    from .answers import LearntTotal
    from .factors import Value
    from .gap import Gap
    from .seeds import Seed

__all__ = ["CampaignOptions", "TestingBased"]


@dataclass(frozen=True)
class CampaignOptions:
    campaign: str | None = option(
        None, Text("campaign"), help="of oomcast campaign fit, for the estimator tbem", metavar="FILE"
    )


class TestingBased(Estimator):
    """The static estimate of a network, and the Gap that a campaign's real runs have found.

    Takes `template:vgg,depth=16,edge=64`, a file that oomcast rendered, or the job file or script of the campaign
    (`template:train.py,width=64`). Refuses what
    the campaign's runs tell nothing of: another template, framework, device or fixed parameter, a factor beyond its
    levels.
    """

    name = "tbem"
    options = CampaignOptions
    takes = frozenset({"coverage", "time_limit", "keep_history"})
    refusal = (
        "it takes the job, the batch size, the device and its campaign; what else decides memory is part of the real "
        "runs behind it."
    )

    def estimate(self, spec: Spec, options: CampaignOptions) -> Estimate:
        if options.campaign is None:
            raise BadInput("the estimator tbem needs a fitted campaign: --campaign FILE, made by oomcast campaign fit.")
        gap = tbem.read_gap(options.campaign)
        device = tbem.device_of_runs(
            gap.device, gap.environment, spec.place.device, f"campaign {gap.campaign!r} was measured"
        )
        seed, named = _given(spec.workload.job, gap)
        parameters = _checked(gap, seed, {**named, "batch_size": spec.workload.batch_size})
        trace = tbem.case_trace(seed.reference, parameters, gap.steps, device, gap.graph)
        varied = {factor.name: parameters[factor.name] for factor in gap.factors}
        total = gap.predict(varied, tbem.static_value(trace, device))
        static = tbem.static_answer(trace, device, int(gap.environment.get("memory", 0)))
        learnt = _learnt(gap, total, spec.place.coverage)
        return tbem.with_learnt_total(static, learnt, seed.described(parameters))


def _given(job: Job, gap: Gap) -> tuple[Seed, dict[str, Value]]:
    """The seed, and the parameters that the job names."""
    if not tbem.is_template_job(job):
        raise BadInput(
            f"the estimator tbem takes {tbem.TEMPLATE_PREFIX}{gap.template},NAME=VALUE,… or a file that oomcast "
            f"rendered from that template, not {job.reference}."
        )
    seed, named = tbem.seed_job(job, gap.digests)
    if not seed.digest and seed.name not in gap.seeds:
        raise BadInput(f"campaign {gap.campaign!r} was fitted to template {gap.template!r}, not to {seed.name!r}.")
    return seed, named


def _checked(gap: Gap, seed: Seed, named: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters of the network, if the campaign's runs tell of it."""
    varied = {factor.name for factor in gap.factors}
    known = {parameter.name for parameter in seed.parameters}
    defaults = {parameter.name: parameter.default for parameter in seed.parameters}
    fixed = {**defaults, **{name: value for name, value in gap.fixed.items() if name in known}}
    for name, value in named.items():
        if name not in varied and value != fixed.get(name):
            raise BadInput(
                f"campaign {gap.campaign!r} was fitted with {name} = {fixed.get(name)!r} only, "
                f"it tells nothing of {value!r}."
            )
    parameters = tbem.buildable(seed, {**fixed, **named})
    if len(gap.seeds) > 1:
        parameters = {"template": seed.name, **parameters}
    for factor in gap.factors:
        value = parameters[factor.name]
        numbers = [float(level) for level in factor.levels] if factor.is_numeric else []
        inside = min(numbers) <= float(value) <= max(numbers) if numbers else value in factor.levels
        if not inside:
            levels = ", ".join(map(str, factor.levels))
            raise BadInput(
                f"campaign {gap.campaign!r} was fitted to {factor.name} of {levels}; it tells nothing of {value}."
            )
    return parameters


def _learnt(gap: Gap, total: int, coverage: float) -> LearntTotal:
    curve = gap.curve()
    most = 1 - 2 * max(curve.levels[0], 1 - curve.levels[-1])
    assured = min(coverage, most)
    if assured <= 0:
        raise BadInput(f"the coverage must be above 0, not {coverage:g}.")
    side = (1 - assured) / 2
    short = (f"{len(gap.ratios)} measured cases cannot promise more than {most:.3g}",) if coverage > most else ()
    return tbem.LearntTotal(
        total=total,
        low=min(round(total * curve.at(side)), total),
        high=max(round(total * curve.at(1 - side)), total),
        coverage=assured,
        will_not_exceed=max(round(total * curve.at(max(assured, 0.5))), total),
        chance_above=lambda needed, usable: round(curve.above(usable / max(needed, 1)), 6),
        remarks=short,
        provenance={
            "estimator": TestingBased.name,
            "calibration": f"campaign {gap.campaign}, {len(gap.runs)} real runs, {len(gap.checks)} to check",
            "interval": f"{len(gap.ratios)} cases that the fit had not seen",
            "environment": tbem.environment_in_words(gap.environment),
        },
    )
