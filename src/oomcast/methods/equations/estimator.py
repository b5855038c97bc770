"""The estimator `equation`: what an equation that was learnt from real runs says of a job.

The command line asks every estimator for its options, so that importing this module must cost nothing: what computes is
taken from the rooms, which load it when it is used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oomcast.methods import equations, tbem

from ...capture import capture
from ...errors import BadInput
from ...estimation import Estimate, Estimator
from ...spec import JobKind, Spec, Text, option

if TYPE_CHECKING:
    from ...trace import Trace
    from ..tbem import LearntTotal, Template, Value
    from .memory_equation import MemoryEquation, Prediction

__all__ = ["ByEquation", "EquationOptions"]


@dataclass(frozen=True)
class EquationOptions:
    equation: str | None = option(
        None, Text("equation"), help="of oomcast equation fit, for the estimator equation", metavar="FILE"
    )


class ByEquation(Estimator):
    """What an equation that was learnt from real runs says of a job.

    Takes `template:unet3d,edge=64` or a file that oomcast rendered; an equation of the Timeline's figures alone takes
    any job. Refuses what the runs tell nothing of: another device, another template or fixed parameter. A point beyond
    the samples' hull is told, with a wider interval.
    """

    name = "equation"
    options = EquationOptions
    takes = frozenset({"coverage", "time_limit", "keep_history"})
    refusal = (
        "it takes the job, the batch size, the device and its equation; what else decides memory is part of the real "
        "runs behind it."
    )

    def estimate(self, spec: Spec, options: EquationOptions) -> Estimate:
        if options.equation is None:
            raise BadInput("the estimator equation needs a fitted one: --equation FILE, made by oomcast equation fit.")
        fitted = equations.read_equation(options.equation)
        device = tbem.device_of_runs(
            fitted.device, fitted.environment, spec.place.device, "the equation was learnt from runs"
        )
        memory = int(fitted.environment.get("memory") or 0)
        if device == tbem.CPU and not memory:
            raise BadInput(
                "the runs behind this equation do not tell how much memory their machine has; add a column "
                "machine_memory, in bytes, to their table and fit it again, or ask oomcast equation predict."
            )
        traced = _traced(fitted, spec, device)
        figures = {} if fitted.features == "parameters" else tbem.trace_features(traced.trace, device)
        values = {**traced.parameters, **figures}
        predicted = fitted.predict(values, spec.place.coverage)
        static = tbem.static_answer(traced.trace, device, memory)
        learnt = _learnt(fitted, predicted, _remarks(fitted, values, predicted, spec.place.coverage, traced.was_learnt))
        return tbem.with_learnt_total(static, learnt, traced.name)


@dataclass(frozen=True)
class _Traced:
    """A captured job as the equation sees it."""

    trace: Trace
    parameters: Mapping[str, Value]
    """All parameters of the template, for a job that is a template's network; else empty."""
    name: str
    was_learnt: bool
    """Whether the equation has learnt from runs of this network."""


def _traced(fitted: MemoryEquation, spec: Spec, device: str) -> _Traced:
    job = spec.workload.job
    steps = equations.traced_steps(fitted.steps)
    any_file = fitted.features == "timeline" and job.kind is not JobKind.TEMPLATE
    if tbem.is_template_job(job) and not any_file:
        template, named = tbem.template_job(job)
        parameters = _parameters(fitted, template, {**named, "batch_size": spec.workload.batch_size})
        trace = tbem.case_trace(template.name, parameters, steps, device)
        name = f"{tbem.TEMPLATE_PREFIX}{template.name}"
        return _Traced(trace, parameters, name, template.name in fitted.templates)
    if fitted.features != "timeline":
        raise BadInput(
            f"the equation is one of a template's parameters; it takes {tbem.TEMPLATE_PREFIX}{fitted.templates[0]},"
            f"NAME=VALUE,… or a file that oomcast rendered from that template, not {job.reference}."
        )
    workload = dataclasses.replace(spec.workload, steps=steps)
    trace = capture(spec.with_workload(workload).with_place(device=tbem.VIRTUAL_GPU if device == tbem.CPU else device))
    return _Traced(trace, {}, str(trace.workload.get("job", job.reference)), False)


def _parameters(fitted: MemoryEquation, template: Template, named: Mapping[str, Value]) -> dict[str, Value]:
    if fitted.features != "timeline":
        if (template.name,) != fitted.templates:
            raise BadInput(
                f"the equation was learnt from runs of {', '.join(fitted.templates)}; it tells nothing of "
                f"{template.name}. One of the Timeline's figures alone (--features timeline) would."
            )
        for name, value in named.items():
            if name in fitted.fixed and value != fitted.fixed[name]:
                raise BadInput(
                    f"{name} was {fitted.fixed[name]!r} in every run that the equation was learnt from; it tells "
                    f"nothing of {value!r}."
                )
        named = {**fitted.fixed, **named}
    return tbem.buildable(template, named)


def _remarks(
    fitted: MemoryEquation, values: Mapping[str, Any], predicted: Prediction, coverage: float, was_learnt: bool
) -> tuple[str, ...]:
    """What a reader must know of this answer."""
    remarks = []
    if predicted.distance > 0:
        ranges = ", ".join(
            f"{name} {values[name]:g} (samples {low:g} to {high:g})" for name, (low, high) in fitted.ranges.items()
        )
        remarks.append(
            f"extrapolated: {ranges} is outside the hull of the samples, by {predicted.distance:.2g} of their ranges; "
            f"the interval is twice as wide as inside, and {math.expm1(fitted.error_beyond(predicted.distance)):.0%} "
            "more on each side"
        )
    if not was_learnt:
        remarks.append(f"the equation was learnt from {', '.join(fitted.templates)}; this is another network")
    if coverage > predicted.coverage:
        remarks.append(f"{len(fitted.learnt)} runs cannot promise more than {predicted.coverage:.3g}")
    return tuple(remarks)


def _learnt(fitted: MemoryEquation, predicted: Prediction, remarks: tuple[str, ...]) -> LearntTotal:
    runs = len(fitted.learnt)
    return tbem.LearntTotal(
        total=predicted.total,
        low=predicted.low,
        high=predicted.high,
        coverage=predicted.coverage,
        will_not_exceed=predicted.will_not_exceed,
        chance_above=lambda needed, usable: fitted.chance_above(needed, usable, predicted.distance),
        remarks=remarks,
        provenance={
            "estimator": ByEquation.name,
            "calibration": f"equation of {runs} real runs of {', '.join(fitted.templates)}",
            "equation": f"{fitted.equation.text()} bytes",
            "interval": f"{runs} runs, each by a fit that had not seen it",
            "environment": tbem.environment_in_words(fitted.environment),
        },
    )
