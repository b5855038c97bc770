"""From a JAX job to its Trace."""

from __future__ import annotations

import platform
import warnings

import jax
import optax

from oomcast.errors import BadInput
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._job_files import job_functions
from ._run import follow
from ._step import batch_form, training_step

__all__ = ["capture_here"]

_POOL = (
    "JAX takes 75 % of a card at its start (XLA_PYTHON_CLIENT_PREALLOCATE=false makes its pool grow with the job); "
    "what the job needs is told apart from that"
)
_NOT_DONATED = (
    "The step does not donate its arguments, so that old and new parameters and optimizer state are held at once; "
    "donate = True in the job file stands for jax.jit(step, donate_argnums=…)"
)


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as XLA compiles it for a CPU."""
    if workload.checkpointing:
        raise BadInput(
            "--checkpointing is not followed for JAX; use jax.checkpoint or flax's nn.remat in the job file."
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = job_functions(workload)
        step = training_step(job, batch_form(job.batch(), workload), workload)
        return follow(
            step,
            workload.steps,
            on_gpu=on_gpu,
            versions={"python": platform.python_version(), "jax": jax.__version__, "optax": optax.__version__},
            workload=workload.as_dict(),
            assumptions=[_POOL, *([] if job.donate else [_NOT_DONATED])] if on_gpu else [],
        )
