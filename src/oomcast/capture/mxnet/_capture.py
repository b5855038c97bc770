"""From an MXNet job to its Trace."""

from __future__ import annotations

import platform
import warnings
from typing import Any

import mxnet as mx

from oomcast.errors import BadInput, OomcastError
from oomcast.trace import Trace
from oomcast.workload import Precision, Workload

from .._job_files import JobFunctions, job_functions
from ._batch import batch_forms
from ._models import Step, gluon_step, load_model, symbol_step
from ._optimizers import Optimizer, optimizer_of
from ._run import follow
from ._virtual import Calls, virtual

__all__ = ["capture_here", "traced"]

_ENGINES = {
    "hybridized": "the block is hybridized: MXNet plans the memory of its graph",
    "static": "the block is hybridized with static_alloc: what its graph once took stays taken",
    "imperative": (
        "the block is not hybridized: it runs operator by operator, as its code calls them; net.hybridize() in model() "
        "would be followed"
    ),
    "executor": "the Symbol is trained as mx.mod.Module does, with a graph that is bound once",
}
_REAL_WEIGHTS = "the model was built with real weights, since its code needs their values"


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as the step would run on a CPU."""
    _check_options(workload)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return traced(job_functions(workload), workload, on_gpu=on_gpu)


def traced(job: JobFunctions, workload: Workload, *, on_gpu: bool) -> Trace:
    """First without weights. Code that needs their values gets real ones."""
    assumptions: list[str] = []
    try:
        step, optimizer, calls = _composed(job, workload, with_weights=False)
    except (OomcastError, SystemExit, KeyboardInterrupt):
        raise
    except Exception:
        step, optimizer, calls = _composed(job, workload, with_weights=True)
        assumptions.append(_REAL_WEIGHTS)
    return follow(
        step,
        optimizer,
        workload.steps,
        calls,
        on_gpu=on_gpu,
        accumulation=workload.accumulation,
        versions={"python": platform.python_version(), "mxnet": mx.__version__},
        workload=workload.as_dict(),
        assumptions=[_ENGINES[step.engine], *assumptions],
    )


def _composed(job: JobFunctions, workload: Workload, *, with_weights: bool) -> tuple[Step, Optimizer, Calls]:
    with virtual(with_weights=with_weights) as calls:
        model = load_model(job, workload)
        batch = batch_forms(job.batch(), workload)
        if isinstance(model, mx.sym.Symbol):
            if job.loss is not None:
                raise BadInput(f"a Symbol ends in its own loss; leave loss() out of {workload.job.name}.")
            step, params = symbol_step(model, batch, workload), None
        else:
            step, params = gluon_step(model, job, batch, workload), model.collect_params()
        return step, optimizer_of(job, params, workload), calls


def _check_options(workload: Workload) -> None:
    refused: list[tuple[Any, str]] = [
        (workload.checkpointing, "--checkpointing is not followed for MXNet, whose blocks have no such switch."),
        (
            workload.precision not in (Precision.FP32, Precision.TF32),
            "--precision is not followed for MXNet; cast the block in model() (net.cast('float16')) and the batch.",
        ),
    ]
    for given, sentence in refused:
        if given:
            raise BadInput(sentence)
