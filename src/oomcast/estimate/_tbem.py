"""Testing-based estimation: the static estimate, and the Gap that a campaign of real runs has found beyond it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from ..design import Value, complete
from ..design.spec import check_network
from ..design.templates import TEMPLATES
from ..devices import find_gpu
from ..errors import BadInput
from ._estimate import Estimate, Verdict
from ._estimators import Target
from ._gap import Gap
from ._gap_file import read_gap
from ._simulator import ACCEPTED_RISK, estimate_trace
from ._static_value import CPU, case_trace, static_value
from ._template_job import TEMPLATE_PREFIX, is_template_job, template_job
from ._tensors_on_cpu import tensors_on_cpu

__all__ = ["estimate_by_campaign"]


def estimate_by_campaign(
    job: Any, *, campaign: str | os.PathLike[str] | None, batch_size: int, device: str, coverage: float
) -> Estimate:
    """`job`: `template:vgg,depth=16,edge=64`, or a file that oomcast rendered; `campaign`: the file of a fit.

    Refuses what the campaign's runs tell nothing of: another template, framework, device or fixed parameter, a factor
    beyond its levels.
    """
    if campaign is None:
        raise BadInput("the estimator tbem needs a fitted campaign: --campaign FILE, made by oomcast campaign fit.")
    gap = read_gap(campaign)
    place = _place(gap, device)
    parameters = _checked(gap, {**_given(job, gap), "batch_size": batch_size})
    trace = case_trace(gap.template, parameters, gap.steps, place)
    base = (
        tensors_on_cpu(trace, int(gap.environment.get("memory", 0)))
        if place == CPU
        else estimate_trace(trace, Target.create(place))
    )
    varied = {factor.name: parameters[factor.name] for factor in gap.factors}
    total = gap.predict(varied, static_value(trace, place))
    return _with_gap(base, gap, total, coverage, f"{TEMPLATE_PREFIX}{gap.template}")


def _place(gap: Gap, device: str) -> str:
    """The device of the campaign, which must be the one asked for."""
    fitted = gap.device if gap.device != "cuda" else find_gpu(str(gap.environment.get("gpu", ""))).name
    asked = CPU if device.strip().lower() == CPU else find_gpu(device).name
    if asked != fitted:
        raise BadInput(f"campaign {gap.campaign!r} was measured on {fitted}; it tells nothing of {asked}.")
    return fitted


def _given(job: Any, gap: Gap) -> dict[str, Value]:
    if not is_template_job(job):
        raise BadInput(
            f"the estimator tbem takes {TEMPLATE_PREFIX}{gap.template},NAME=VALUE,… or a file that oomcast rendered "
            f"from that template, not {job!r}."
        )
    template, given = template_job(job)
    if template.name != gap.template:
        raise BadInput(f"campaign {gap.campaign!r} was fitted to template {gap.template!r}, not to {template.name!r}.")
    return given


def _checked(gap: Gap, given: Mapping[str, Value]) -> dict[str, Value]:
    template = TEMPLATES[gap.template]
    names = [factor.name for factor in gap.factors]
    missing = [name for name in names if name not in given]
    defaults = {parameter.name: parameter.default for parameter in template.parameters}
    if missing:
        # A rendered file leaves out what is the template's default; a person may, too.
        given = {**{name: defaults[name] for name in missing}, **given}
    for name, value in given.items():
        if name not in names and value != gap.fixed.get(name):
            raise BadInput(
                f"campaign {gap.campaign!r} was fitted with {name} = {gap.fixed.get(name)!r} only, "
                f"it tells nothing of {value!r}."
            )
    parameters = complete(template, {**gap.fixed, **given})
    for factor in gap.factors:
        value = parameters[factor.name]
        numbers = [float(level) for level in factor.levels] if factor.is_numeric else []
        inside = min(numbers) <= float(value) <= max(numbers) if numbers else value in factor.levels
        if not inside:
            levels = ", ".join(map(str, factor.levels))
            raise BadInput(
                f"campaign {gap.campaign!r} was fitted to {factor.name} of {levels}; it tells nothing of {value}."
            )
    rejection = check_network(template.network(parameters))
    if rejection is not None:
        raise BadInput(f"this network cannot be built: {rejection}.")
    return parameters


def _with_gap(base: Estimate, gap: Gap, total: int, coverage: float, job: str) -> Estimate:
    curve = gap.curve()
    most = 1 - 2 * max(curve.levels[0], 1 - curve.levels[-1])
    assured = min(coverage, most)
    if assured <= 0:
        raise BadInput(f"the coverage must be above 0, not {coverage:g}.")
    side = (1 - assured) / 2
    needed = base.least_capacity + total - base.device_total
    p_oom = round(curve.above(base.device_usable / max(needed, 1)), 6) if base.device_usable else 1.0
    verdict = Verdict.OOM if needed > base.device_usable else Verdict.TIGHT if p_oom > ACCEPTED_RISK else Verdict.FITS
    told = gap.environment
    runs = f"{len(gap.runs)} real runs, {len(gap.checks)} to check"
    short = (f"{len(gap.ratios)} measured cases cannot promise more than {most:.3g}",) if coverage > most else ()
    return dataclasses.replace(
        base,
        device_total=total,
        low=min(round(total * curve.at(side)), total),
        high=max(round(total * curve.at(1 - side)), total),
        coverage=assured,
        will_not_exceed=max(round(total * curve.at(max(assured, 0.5))), total),
        p_oom=p_oom,
        verdict=verdict,
        breakdown={**base.breakdown, "gap": total - base.device_total},
        least_capacity=needed,
        assumptions=(*base.assumptions, *short),
        workload={**base.workload, "job": job},
        provenance={
            **base.provenance,
            "estimator": "tbem",
            "calibration": f"campaign {gap.campaign}, {runs}",
            "interval": f"{len(gap.ratios)} cases that the fit had not seen",
            "environment": f"{told.get('framework', '')} {told.get('version', '')}".strip(),
        },
    )
