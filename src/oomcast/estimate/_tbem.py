"""Testing-based estimation: the static estimate, and the Gap that a campaign of real runs has found beyond it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..design import Template, Value, complete
from ..design.spec import check_network
from ..design.templates import FRAMEWORKS, TEMPLATES, render
from ..devices import find_gpu
from ..errors import BadInput, UnknownName
from ..trace import Trace
from ._estimate import Estimate, Verdict
from ._estimators import Target
from ._gap import Gap
from ._gap_file import read_gap
from ._simulator import ACCEPTED_RISK, estimate_trace, peak_moment, top_tensors
from ._static_value import CPU, case_trace, cpu_timeline, live_peak, static_value

__all__ = ["TEMPLATE_PREFIX", "estimate_by_campaign"]

TEMPLATE_PREFIX = "template:"
_MADE_FROM = re.compile(r"Made from oomcast's template (\w+), with (.+?)\.\s*\n\n", re.DOTALL)
_STEPS = re.compile(r"^STEPS = ([0-9]{1,6})$", re.MULTILINE)
_LARGEST_FILE = 4 << 20


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
    base = _on_cpu(trace, gap) if place == CPU else estimate_trace(trace, Target.create(place))
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
    text = str(job) if isinstance(job, (str, os.PathLike)) else ""
    if text.startswith(TEMPLATE_PREFIX):
        name, _, settings = text[len(TEMPLATE_PREFIX) :].partition(",")
        parts = settings.split(",") if settings else []
        return _settings(_template(name.strip(), gap), parts, text)
    if text.endswith(".py"):
        return _from_file(Path(text), gap)
    raise BadInput(
        f"the estimator tbem takes {TEMPLATE_PREFIX}{gap.template},NAME=VALUE,… or a file that oomcast rendered from "
        f"that template, not {job!r}."
    )


def _template(name: str, gap: Gap) -> Template:
    if name not in TEMPLATES:
        raise UnknownName("template", name, TEMPLATES)
    if name != gap.template:
        raise BadInput(f"campaign {gap.campaign!r} was fitted to template {gap.template!r}, not to {name!r}.")
    return TEMPLATES[name]


def _settings(template: Template, parts: list[str], where: str) -> dict[str, Value]:
    kinds = {parameter.name: parameter.kind for parameter in template.parameters}
    found: dict[str, Value] = {}
    for part in parts:
        name, equals, written = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise BadInput(f"cannot read {part.strip()!r} in {where}; write NAME=VALUE.")
        if name not in kinds:
            raise UnknownName(f"parameter of template {template.name!r}", name, kinds)
        found[name] = written if kinds[name] == "str" else _number(written)
    return found


def _number(written: str) -> Value:
    try:
        value = json.loads(written.lower())
    except ValueError:
        return written
    return value if isinstance(value, (int, float)) else written


def _from_file(path: Path, gap: Gap) -> dict[str, Value]:
    """The parameters that a rendered file names, if it is still what they give."""
    try:
        source = path.read_text(encoding="utf-8") if path.stat().st_size <= _LARGEST_FILE else ""
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}.") from None
    made, steps = _MADE_FROM.search(source), _STEPS.search(source)
    if made is None or steps is None:
        raise BadInput(f"{path} was not rendered by oomcast from a template; tbem knows the campaign's template only.")
    template = _template(made.group(1), gap)
    parameters = _settings(template, " ".join(made.group(2).split()).split(", "), str(path))
    network = template.network(complete(template, parameters))
    if check_network(network) is not None or source not in {
        render(network, framework, steps=max(int(steps.group(1)), 1), device=device)
        for framework in FRAMEWORKS
        for device in ("cpu", "cuda")
    }:
        raise BadInput(f"{path} was changed after oomcast rendered it; tbem knows the template's own networks only.")
    return parameters


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


def _on_cpu(trace: Trace, gap: Gap) -> Estimate:
    """What tensors alone hold, on the machine that the campaign ran on."""
    timeline, live = cpu_timeline(trace), live_peak(trace)
    total = sum(live.values())
    return Estimate(
        peak_allocated=total,
        peak_reserved=total,
        device_total=total,
        low=total,
        high=total,
        coverage=0.0,
        will_not_exceed=total,
        p_oom=0.0,
        verdict=Verdict.FITS,
        breakdown={category.value: size for category, size in live.items()},
        top_tensors=top_tensors(trace, timeline),
        peak=peak_moment(trace, timeline),
        phase_peaks=tuple((s.step, s.phase.value, s.allocated, s.allocated) for s in timeline.spans),
        least_capacity=total,
        device=CPU,
        device_usable=int(gap.environment.get("memory", 0)),
        unsupported={**trace.unsupported},
        assumptions=trace.assumptions,
        workload=trace.workload,
        seconds=0.0,
        provenance={"versions": dict(trace.versions)},
    )


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
