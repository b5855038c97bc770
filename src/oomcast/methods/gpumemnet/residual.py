"""The simulator's answer, corrected by what real runs teach about the rest of it: the estimator `learned`."""

from __future__ import annotations

import dataclasses
import math

from ...errors import BadInput
from ...estimation import ACCEPTED_RISK, Estimate, Target, Verdict, agreeing_chance, estimate_trace
from ...trace import Category, Trace
from .artifact import Artifact, ResidualModel, unlike_domain, unlike_runs
from .features import (
    LayerFeatures,
    SimulatorFeatures,
    layers_with_memory,
    reserved_without_workspaces,
    simulator_features,
)

__all__ = ["CLASS_WIDTHS", "corrected", "estimate_by_residual"]

CLASS_WIDTHS = (1000 << 20, 2000 << 20, 8000 << 20)
"""GPUMemNet's classes: its GB are 1000 MiB."""


def estimate_by_residual(trace: Trace, target: Target, artifact: Artifact) -> Estimate:
    if artifact.residual is None:
        raise BadInput(
            f"the estimators of {artifact.id} hold none over the simulator: it is learnt from measured runs on a GPU; "
            "give oomcast dataset train some, or leave --artifact out."
        )
    layers, base = layers_with_memory(trace), estimate_trace(trace, target)
    features = simulator_features(base, layers, reserved_without_workspaces(trace, target))
    return corrected(base, layers, features, target, artifact, artifact.residual)


def corrected(
    base: Estimate,
    layers: LayerFeatures,
    features: SimulatorFeatures,
    target: Target,
    artifact: Artifact,
    model: ResidualModel,
) -> Estimate:
    """What is unlike anything seen keeps the simulator's figure, with a wider interval."""
    learnt_from = artifact.trained.get("residual", {})
    unlike = (
        *unlike_domain(layers, features.values(), SimulatorFeatures.names(), model.domain),
        *unlike_runs(learnt_from, base.workload, target.gpu.name),
    )
    middle, spread = model.answer(features)
    if unlike:
        middle, spread = 0.0, max(spread, model.wide_spread)
    context = base.breakdown["context"]
    floor = context + base.breakdown[Category.PARAMETER.value]
    total = max(round(base.device_total * math.exp(middle)), min(floor, base.device_total))
    coverage = min(target.coverage, _most(model))
    low, high = (_at(model, base, middle, spread, level) for level in ((1 - coverage) / 2, (1 + coverage) / 2))
    bound = _at(model, base, middle, spread, max(coverage, 0.5))
    if unlike:
        low, high, bound = min(low, base.low), max(high, base.high), max(bound, base.will_not_exceed)
    needed = max(base.least_capacity + total - base.device_total, 1)
    p_oom = round(model.curve.above(math.log(base.device_usable / needed) / spread), 6)
    # Outside of what was learnt the simulator's bounds hold, and so does its chance.
    p_oom = agreeing_chance(max(p_oom, base.p_oom) if unlike else p_oom, base.verdict is not Verdict.OOM)
    reserved = total - context
    allocated = min(base.peak_allocated, reserved)
    return dataclasses.replace(
        base,
        peak_allocated=allocated,
        peak_reserved=reserved,
        device_total=total,
        coverage=coverage,
        low=max(min(low, total), min(floor, total)),
        high=max(high, total),
        will_not_exceed=max(bound, total),
        p_oom=p_oom,
        verdict=_verdict(base, p_oom),
        breakdown={**base.breakdown, "learned": total - base.device_total},
        least_capacity=needed,
        assumptions=(*base.assumptions, *(f"out of distribution: {sentence}" for sentence in unlike)),
        interval_basis=None,
        provenance={
            **base.provenance,
            "estimator": "learned",
            "trained": artifact.id,
            "interval": f"conditional quantiles of {artifact.id}",
            "out_of_distribution": list(unlike),
            "classes": [
                {"width": width, "chosen": total // width, "probability": _probability(model, total, spread, width)}
                for width in CLASS_WIDTHS
            ],
        },
    )


def _most(model: ResidualModel) -> float:
    """The coverage that the runs behind the curve can promise."""
    return 1 - 2 * max(model.curve.levels[0], 1 - model.curve.levels[-1])


def _at(model: ResidualModel, base: Estimate, middle: float, spread: float, level: float) -> int:
    return round(base.device_total * math.exp(middle + spread * model.curve.at(level)))


def _probability(model: ResidualModel, total: int, spread: float, width: int) -> float:
    """That the truth is in the same class as the estimate."""
    lower, upper = total // width * width, (total // width + 1) * width
    above = model.curve.above(math.log(lower / total) / spread) if lower else 1.0
    return round(above - model.curve.above(math.log(upper / total) / spread), 4)


def _verdict(base: Estimate, p_oom: float) -> Verdict:
    """The simulated allocator knows best whether it runs; how likely it is comes from here."""
    if base.verdict is Verdict.OOM:
        return Verdict.OOM
    return Verdict.TIGHT if base.verdict is Verdict.TIGHT or p_oom > ACCEPTED_RISK else Verdict.FITS
