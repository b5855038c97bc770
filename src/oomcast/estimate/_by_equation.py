"""The estimator `equation`: what an equation that was learnt from real runs says of a job."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from typing import Any

from ..capture import capture
from ..design import Template, Value, complete
from ..design.spec import check_network
from ..devices import find_gpu
from ..errors import BadInput
from ..trace import Trace
from ..workload import Workload
from ._equation import MemoryEquation, Prediction, traced_steps
from ._equation_file import read_equation
from ._estimate import Estimate, Verdict
from ._estimators import Target
from ._simulator import ACCEPTED_RISK, estimate_trace
from ._static_value import CPU, VIRTUAL_GPU, case_trace
from ._template_job import TEMPLATE_PREFIX, is_template_job, template_job
from ._tensors_on_cpu import tensors_on_cpu
from ._trace_features import trace_features

__all__ = ["estimate_by_equation"]


def estimate_by_equation(
    job: Any,
    *,
    equation: str | os.PathLike[str] | None,
    batch_size: int,
    device: str,
    coverage: float,
    time_limit: float = 300.0,
) -> Estimate:
    """`job`: `template:unet3d,edge=64` or a file that oomcast rendered; `equation`: the file of a fit.

    An equation of the Timeline's figures alone takes any job. Refuses what the runs tell nothing of: another device,
    another template or fixed parameter. A point beyond the samples' hull is told, with a wider interval.
    """
    if equation is None:
        raise BadInput("the estimator equation needs a fitted one: --equation FILE, made by oomcast equation fit.")
    fitted = read_equation(equation)
    place = _place(fitted, device)
    if is_template_job(job) and not (fitted.features == "timeline" and not str(job).startswith(TEMPLATE_PREFIX)):
        template, given = template_job(job)
        parameters = _parameters(fitted, template, {**given, "batch_size": batch_size})
        trace = case_trace(template.name, parameters, traced_steps(fitted.steps), place)
        name, known = f"{TEMPLATE_PREFIX}{template.name}", template.name in fitted.templates
    else:
        trace = _other_trace(fitted, job, batch_size, place, time_limit)
        parameters, name, known = {}, str(trace.workload.get("job", job)), False
    figures = {} if fitted.features == "parameters" else trace_features(trace, place)
    values = {**parameters, **figures}
    predicted = fitted.predict(values, coverage)
    memory = int(fitted.environment.get("memory", 0))
    base = tensors_on_cpu(trace, memory) if place == CPU else estimate_trace(trace, Target.create(place))
    return _answer(base, fitted, predicted, coverage, name, _marks(fitted, values, predicted, known))


def _place(fitted: MemoryEquation, device: str) -> str:
    """The device of the runs, which must be the one asked for."""
    of_runs = fitted.device if fitted.device != "cuda" else find_gpu(str(fitted.environment.get("gpu", ""))).name
    asked = CPU if device.strip().lower() == CPU else find_gpu(device).name
    if asked != of_runs:
        raise BadInput(f"the equation was learnt from runs on {of_runs}; it tells nothing of {asked}.")
    return of_runs


def _parameters(fitted: MemoryEquation, template: Template, given: Mapping[str, Value]) -> dict[str, Value]:
    if fitted.features != "timeline":
        if (template.name,) != fitted.templates:
            raise BadInput(
                f"the equation was learnt from runs of {', '.join(fitted.templates)}; it tells nothing of "
                f"{template.name}. One of the Timeline's figures alone (--features timeline) would."
            )
        for name, value in given.items():
            if name in fitted.fixed and value != fitted.fixed[name]:
                raise BadInput(
                    f"{name} was {fitted.fixed[name]!r} in every run that the equation was learnt from; it tells "
                    f"nothing of {value!r}."
                )
        given = {**fitted.fixed, **given}
    parameters = complete(template, given)
    rejection = check_network(template.network(parameters))
    if rejection is not None:
        raise BadInput(f"this network cannot be built: {rejection}.")
    return parameters


def _other_trace(fitted: MemoryEquation, job: Any, batch_size: int, place: str, time_limit: float) -> Trace:
    if fitted.features != "timeline":
        raise BadInput(
            f"the equation is one of a template's parameters; it takes {TEMPLATE_PREFIX}{fitted.templates[0]},"
            f"NAME=VALUE,… or a file that oomcast rendered from that template, not {job!r}."
        )
    workload = Workload.create(job, batch_size=batch_size, steps=traced_steps(fitted.steps))
    return capture(workload, find_gpu(VIRTUAL_GPU if place == CPU else place), time_limit)


def _marks(fitted: MemoryEquation, values: Mapping[str, Any], predicted: Prediction, known: bool) -> tuple[str, ...]:
    """What a reader must know of this answer."""
    marks = []
    if predicted.distance > 0:
        ranges = ", ".join(
            f"{name} {values[name]:g} (samples {low:g} to {high:g})" for name, (low, high) in fitted.ranges.items()
        )
        marks.append(
            f"extrapolated: {ranges} is outside the hull of the samples, by {predicted.distance:.2g} of their ranges; "
            f"the interval is twice as wide as inside, and {math.expm1(fitted.error_beyond(predicted.distance)):.0%} "
            "more on each side"
        )
    if not known:
        marks.append(f"the equation was learnt from {', '.join(fitted.templates)}; this is another network")
    return tuple(marks)


def _answer(
    base: Estimate, fitted: MemoryEquation, predicted: Prediction, coverage: float, job: str, marks: tuple[str, ...]
) -> Estimate:
    total = predicted.total
    needed = base.least_capacity + total - base.device_total
    p_oom = fitted.chance_above(needed, base.device_usable, predicted.distance) if base.device_usable else 1.0
    verdict = Verdict.OOM if needed > base.device_usable else Verdict.TIGHT if p_oom > ACCEPTED_RISK else Verdict.FITS
    told, runs = fitted.environment, len(fitted.learnt)
    if coverage > predicted.coverage:
        marks = (*marks, f"{runs} runs cannot promise more than {predicted.coverage:.3g}")
    return dataclasses.replace(
        base,
        device_total=total,
        low=predicted.low,
        high=predicted.high,
        coverage=predicted.coverage,
        will_not_exceed=predicted.will_not_exceed,
        p_oom=p_oom,
        verdict=verdict,
        breakdown={**base.breakdown, "gap": total - base.device_total},
        least_capacity=needed,
        assumptions=(*base.assumptions, *marks),
        workload={**base.workload, "job": job},
        provenance={
            **base.provenance,
            "estimator": "equation",
            "calibration": f"equation of {runs} real runs of {', '.join(fitted.templates)}",
            "equation": f"{fitted.equation.text()} bytes",
            "interval": f"{runs} runs, each by a fit that had not seen it",
            "environment": f"{told.get('framework', '')} {told.get('version', '')}".strip(),
        },
    )
