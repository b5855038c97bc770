"""`job.py`: the user's own file, with `model()` and `batch(batch_size)`, perhaps `loss`, `optimizer`, `batches`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from oomcast.errors import BadInput
from oomcast.workload import Workload

from ..._frameworks import check_framework
from ._loaded import LoadedJob, call_batch

__all__ = ["from_functions", "load_file"]


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
    )


def _with_sizes(function: Callable[..., Any], workload: Workload) -> Callable[[], Any]:
    return partial(call_batch, function, workload.batch_size, workload.input_shape, workload.seq_len)


def _model_of_torch(model: Callable[[], Any]) -> Any:
    built = model()
    check_framework(built, "torch")
    return built
