"""The learned estimators by name; each takes a workload and a target, as every estimator does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...capture import capture
from ...trace import Trace
from ...workload import Workload
from .._estimate import Estimate
from .._estimators import Target
from ._artifact import load_artifact
from ._classes import estimate_by_classes
from ._residual import estimate_by_residual

__all__ = [
    "GPUMEMNET_MLP",
    "GPUMEMNET_TRANSFORMER",
    "LEARNED",
    "TRACE_ESTIMATORS",
    "estimate_by_learned",
    "estimate_by_mlp_classes",
    "estimate_by_transformer_classes",
]

GPUMEMNET_MLP = "gpumemnet-mlp"
GPUMEMNET_TRANSFORMER = "gpumemnet-transformer"
LEARNED = "learned"


def _by_classes(trace: Trace, target: Target, estimator: str) -> Estimate:
    return estimate_by_classes(trace, target, load_artifact(), estimator)


def _by_residual(trace: Trace, target: Target) -> Estimate:
    return estimate_by_residual(trace, target, load_artifact())


TRACE_ESTIMATORS: Mapping[str, Callable[[Trace, Target], Estimate]] = {
    GPUMEMNET_MLP: partial(_by_classes, estimator=GPUMEMNET_MLP),
    GPUMEMNET_TRANSFORMER: partial(_by_classes, estimator=GPUMEMNET_TRANSFORMER),
    LEARNED: _by_residual,
}
"""The Estimates of a job that was captured before."""


def estimate_by_mlp_classes(workload: Workload, target: Target) -> Estimate:
    return _captured(workload, target, GPUMEMNET_MLP)


def estimate_by_transformer_classes(workload: Workload, target: Target) -> Estimate:
    return _captured(workload, target, GPUMEMNET_TRANSFORMER)


def estimate_by_learned(workload: Workload, target: Target) -> Estimate:
    return _captured(workload, target, LEARNED)


def _captured(workload: Workload, target: Target, name: str) -> Estimate:
    return TRACE_ESTIMATORS[name](capture(workload, target.gpu, target.time_limit), target)
