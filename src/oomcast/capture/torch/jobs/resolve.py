"""`job.py`: the user's own file, with `model()` and `batch(batch_size)`, perhaps `loss`, `optimizer`, `batches`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from oomcast import zoo
from oomcast.errors import BadInput
from oomcast.spec import JobKind, Workload

from ...frameworks import check_framework
from ..blocks import keep_first_blocks
from .diffusion import load_diffusers
from .equal_layers import EqualLayers, equal_blocks
from .hf import hf_layers, load_hf
from .loaded import LoadedJob, call_batch
from .tuned import check_tuning
from .vision import load_timm, load_torchvision

__all__ = ["from_functions", "layers_of_job", "load_file", "load_job"]


def load_file(path: str, workload: Workload) -> LoadedJob:
    """Run the file as a module of its own; the folder it stands in can be imported from, as with `python job.py`."""
    place = Path(path).resolve()
    sys.path.insert(0, str(place.parent))
    specification = importlib.util.spec_from_file_location("oomcast_job", place)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["oomcast_job"] = module
    specification.loader.exec_module(module)
    return from_functions(module, path, workload)


def from_functions(holder: Any, name: str, workload: Workload) -> LoadedJob:
    """The job of anything that has the job file's functions."""
    for required, form in (("model", "model()"), ("batch", "batch(batch_size)")):
        function = getattr(holder, required, None)
        if function is None:
            raise BadInput(f"{name} defines no {required}; a job needs {form}.")
        if not callable(function):
            raise BadInput(f"{required} in {name} is not a function; a job needs {form}.")
    if not callable(getattr(holder, "batches", from_functions)):
        raise BadInput(f"batches in {name} is not a function; it must be batches(batch_size), or have another name.")
    return LoadedJob(
        model=partial(_model_of_torch, holder.model),
        batch=_with_sizes(holder.batch, workload),
        loss=getattr(holder, "loss", None),
        optimizer=getattr(holder, "optimizer", None),
        loader=_with_sizes(holder.batches, workload) if hasattr(holder, "batches") else None,
        tensor_parallel_plan=getattr(holder, "tensor_parallel_plan", None),
    )


def _with_sizes(function: Callable[..., Any], workload: Workload) -> Callable[[], Any]:
    return partial(call_batch, function, workload.batch_size, workload.input_shape, workload.seq_len)


def _model_of_torch(model: Callable[[], Any]) -> Any:
    built = model()
    check_framework(built, "torch")
    return built


# -------- Which library a job comes from


def layers_of_job(workload: Workload) -> EqualLayers | None:
    """The depths that tell everything about the job's model, where that is known before it is captured."""
    if workload.job.kind in (JobKind.HF, JobKind.CONFIG):
        check_tuning(workload)
        return hf_layers(_hf_name(workload), workload)
    if workload.job.kind is JobKind.ZOO:
        return equal_blocks(zoo.find(workload.job.name).load().model, workload)
    return None


def _hf_name(workload: Workload) -> str:
    return workload.job.name if workload.job.kind is JobKind.HF else workload.model or ""


def load_job(workload: Workload, layers: int | None = None) -> LoadedJob:
    """The functions of the workload's job, with its sizes bound. The user's file runs here.

    `layers`: of a model that `layers_of_job` tells of, only so many.
    """
    job = workload.job
    check_tuning(workload)
    if job.kind is JobKind.FILE:
        return load_file(job.name, workload)
    if job.kind is JobKind.OBJECT:
        return from_functions(job.target, job.name, workload)
    if job.kind is JobKind.TIMM:
        return load_timm(job.name, workload)
    if job.kind is JobKind.TORCHVISION:
        return load_torchvision(job.name, workload)
    if job.kind is JobKind.DIFFUSERS:
        return load_diffusers(job.name, workload)
    if job.kind in (JobKind.HF, JobKind.CONFIG):
        return load_hf(_hf_name(workload), workload, layers)
    entry = zoo.find(job.name).load()
    batch = partial(call_batch, entry.batch, workload.batch_size, workload.input_shape, workload.seq_len)
    return LoadedJob(partial(_first_blocks, entry.model, layers), batch, entry.loss)


def _first_blocks(build: Callable[[], nn.Module], layers: int | None) -> nn.Module:
    model = build()
    if layers is not None:
        keep_first_blocks(model, layers)
    return model
