"""The optimizer of an MXNet job: what it keeps for each weight, and what an update takes while it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mxnet as mx

from oomcast.errors import BadInput
from oomcast.workload import Workload

from .._job_files import JobFunctions
from ._graph import Tensor

__all__ = ["BY_NAME", "Optimizer", "optimizer_of"]

BY_NAME: dict[str, tuple[str, dict[str, float]]] = {
    "sgd": ("sgd", {}),
    "sgd-momentum": ("sgd", {"momentum": 0.9}),
    "adam": ("adam", {}),
    "rmsprop": ("rmsprop", {}),
    "adagrad": ("adagrad", {}),
}
_WEIGHTS_IN_UPDATE = {"AdaGrad": 4, "AdaDelta": 3, "Adamax": 4, "Nadam": 8, "LAMB": 1, "SGLD": 3, "DCASGD": 5}
"""Optimizers that are written in Python → the most arrays of the weight's size while one is updated; as measured on
MXNet 1.9.1. The others are one kernel each."""


@dataclass(frozen=True)
class Optimizer:
    rule: Any
    """MXNet's own."""

    @property
    def name(self) -> str:
        return type(self.rule).__name__

    def states(self, weight: Tensor) -> list[Tensor]:
        """What is kept for a weight: asked of the optimizer for a weight of that rank with two of everything."""
        shape = (2,) * len(weight.shape)
        given = mx.nd.zeros(shape, dtype=weight.dtype)
        return [
            Tensor(
                tuple(full if extent == 2 else extent for full, extent in zip(weight.shape, state.shape, strict=False)),
                "float32" if state.dtype.__name__ == "float32" else weight.dtype,
                4 if state.dtype.__name__ == "float32" else weight.itemsize,
            )
            for state in _arrays(self.rule.create_state_multi_precision(0, given))
        ]

    def scratch(self, weight: Tensor) -> int:
        return _WEIGHTS_IN_UPDATE.get(self.name, 0) * weight.nbytes


def optimizer_of(job: JobFunctions, params: Any, workload: Workload) -> Optimizer:
    """The one that was asked for, else the job's, else Adam."""
    if workload.optimizer is not None:
        if workload.optimizer not in BY_NAME:
            raise BadInput(
                f"MXNet has no optimizer {workload.optimizer}; choose among {', '.join(BY_NAME)}, or write "
                "optimizer(params) in the job file."
            )
        name, options = BY_NAME[workload.optimizer]
        return Optimizer(mx.optimizer.create(name, **options))
    if job.optimizer is None:
        return Optimizer(mx.optimizer.create("adam"))
    found = job.optimizer(params)
    if isinstance(found, mx.gluon.Trainer):
        found = found._optimizer
    elif isinstance(found, str):
        found = mx.optimizer.create(found)
    if not isinstance(found, mx.optimizer.Optimizer):
        raise BadInput(
            f"optimizer() in {workload.job.name} returned {type(found).__name__}; return a gluon.Trainer, an "
            "mx.optimizer.Optimizer or its name."
        )
    return Optimizer(found)


def _arrays(state: Any) -> Iterator[Any]:
    if isinstance(state, (list, tuple)):
        for part in state:
            yield from _arrays(part)
    elif isinstance(state, mx.nd.NDArray):
        yield state
