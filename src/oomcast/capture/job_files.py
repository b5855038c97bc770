"""A job's functions, whatever framework they use: the user's file is run, or an object's functions are taken."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput
from ..spec import JobKind, JobPhase, Workload

__all__ = ["JobFunctions", "call_batch", "job_functions", "run_file"]


@dataclass(frozen=True)
class JobFunctions:
    """`batch` has its sizes bound already; what the job leaves open is None."""

    model: Callable[[], Any]
    batch: Callable[[], Any]
    loss: Callable[[Any, Any], Any] | None
    optimizer: Callable[[Any], Any] | None
    donate: bool = False
    """Whether a JAX step gives the memory of what it replaces to what replaces it."""
    shardings: Callable[[Any], Any] | None = None
    """Of a JAX job for several GPUs: where its parameters lie."""


def job_functions(workload: Workload, phases: Sequence[JobPhase] = (JobPhase.TRAINING,)) -> JobFunctions:
    """Of a job file or an object; names of torch's libraries are for torch's capture.

    Raises BadInput for a phase that the framework does not follow.
    """
    job = workload.job
    if workload.phase not in phases:
        others = " or ".join(f"--phase {phase.value}" for phase in phases if phase is not JobPhase.TRAINING)
        raise BadInput(
            f"--phase {workload.phase.value} is not followed for this framework; "
            + (f"{others} is." if others else "leave it out.")
        )
    if job.kind is JobKind.FILE:
        holder = run_file(job.name)
    elif job.kind is JobKind.OBJECT:
        holder = job.target
    else:
        raise BadInput(f"{job.reference} names a model of torch; give a job file for another framework.")
    for required, form in (("model", "model()"), ("batch", "batch(batch_size)")):
        if not callable(getattr(holder, required, None)):
            raise BadInput(f"{job.name} defines no function {required}; a job needs {form}.")
    return JobFunctions(
        model=holder.model,
        batch=lambda: call_batch(holder.batch, workload),
        loss=getattr(holder, "loss", None),
        optimizer=getattr(holder, "optimizer", None),
        donate=bool(getattr(holder, "donate", False)),
        shardings=getattr(holder, "shardings", None),
    )


def run_file(path: str) -> Any:
    """Run the file as a module of its own; the folder it stands in can be imported from, as with `python job.py`."""
    place = Path(path).resolve()
    sys.path.insert(0, str(place.parent))
    specification = importlib.util.spec_from_file_location("oomcast_job", place)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["oomcast_job"] = module
    specification.loader.exec_module(module)
    return module


def call_batch(batch: Callable[..., Any], workload: Workload) -> Any:
    """Call a job's `batch`, with the sizes that were asked for, if it takes them."""
    sizes = {"input_shape": workload.input_shape, "seq_len": workload.seq_len}
    wanted = {name: size for name, size in sizes.items() if size is not None}
    parameters = inspect.signature(batch).parameters if wanted else {}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in wanted:
        if name not in parameters and not takes_any:
            option = "--" + name.replace("_", "-")
            raise BadInput(f"{option} was given, but the job's batch() takes no {name}; add it as a parameter.")
    return batch(workload.batch_size, **wanted)
