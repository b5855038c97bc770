"""The optimizer of a JAX job: Optax's, by name or from the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax

from oomcast.errors import BadInput
from oomcast.workload import Workload

from .._job_files import JobFunctions

__all__ = ["optimizer_of"]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optax.sgd(1e-3),
    "sgd-momentum": lambda: optax.sgd(1e-3, momentum=0.9),
    "adam": lambda: optax.adam(1e-3),
    "adamw": lambda: optax.adamw(1e-3),
    "rmsprop": lambda: optax.rmsprop(1e-3),
    "adagrad": lambda: optax.adagrad(1e-3),
    "adafactor": lambda: optax.adafactor(1e-3),
}


def optimizer_of(job: JobFunctions, params: Any, workload: Workload) -> Any:
    """The one that was asked for, else the job's, else AdamW; over several micro-batches if there are."""
    chosen = _chosen(job, params, workload)
    return chosen if workload.accumulation == 1 else optax.MultiSteps(chosen, workload.accumulation)


def _chosen(job: JobFunctions, params: Any, workload: Workload) -> Any:
    if workload.optimizer is not None:
        if workload.optimizer not in OPTIMIZERS:
            raise BadInput(
                f"Optax has no optimizer {workload.optimizer}; choose among {', '.join(OPTIMIZERS)}, without a suffix."
            )
        return OPTIMIZERS[workload.optimizer]()
    if job.optimizer is None:
        return OPTIMIZERS["adamw"]()
    found = job.optimizer(params)
    if not (hasattr(found, "init") and hasattr(found, "update")):
        raise BadInput(f"optimizer() in {workload.job.name} returned no optimizer of Optax (init and update).")
    return found
