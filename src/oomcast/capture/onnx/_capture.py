"""From an ONNX model file, or a job that makes a model, to its Trace."""

from __future__ import annotations

import platform
from typing import Any

import onnx

from oomcast.errors import BadInput
from oomcast.trace import Trace
from oomcast.workload import Precision, Workload

from .._frameworks import check_framework
from .._job_files import job_functions
from ._graph import Graph
from ._read import read_model, to_graph
from ._run import SLOTS, follow_inference, follow_training

__all__ = ["capture_here", "graph_of"]

_INFERENCE = "without --optimizer an ONNX model is run, not trained; with one, a training step is followed"
_TRAINING = (
    "the training step follows from the forward graph: every operator's gradient keeps what it must read, and weights "
    "that are not batch statistics are all trained"
)


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as ONNX Runtime runs it on a CPU."""
    _check_options(workload)
    graph = graph_of(workload)
    facts: dict[str, Any] = {
        "on_gpu": on_gpu,
        "versions": {"python": platform.python_version(), "onnx": onnx.__version__},
        "workload": workload.as_dict(),
    }
    if workload.optimizer is None:
        return follow_inference(graph, workload.steps, assumptions=[_INFERENCE], **facts)
    if workload.optimizer not in SLOTS:
        raise BadInput(f"an ONNX model is trained with one of {', '.join(SLOTS)}, not {workload.optimizer}.")
    return follow_training(graph, workload.steps, workload.optimizer, assumptions=[_TRAINING], **facts)


def graph_of(workload: Workload) -> Graph:
    job = workload.job
    if job.name.endswith(".onnx"):
        return to_graph(read_model(job.name), workload)
    functions = job_functions(workload)
    model = functions.model()
    check_framework(model, "onnx")
    if isinstance(model, str):
        model = read_model(model)
    if not isinstance(model, onnx.ModelProto):
        raise BadInput(f"model() in {job.name} returned {type(model).__name__}; return an onnx.ModelProto or a path.")
    names = [item.name for item in model.graph.input if item.name not in {w.name for w in model.graph.initializer}]
    batch = functions.batch()
    given = batch if isinstance(batch, dict) else dict(zip(names, batch, strict=False))
    try:
        forms = {name: tuple(int(extent) for extent in array.shape) for name, array in given.items()}
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {job.name} returned something without a shape; return arrays, in the order of the model's "
            "inputs or by their names."
        ) from error
    return to_graph(model, workload, forms)


def _check_options(workload: Workload) -> None:
    for given, option in (
        (workload.accumulation > 1, "--accumulation"),
        (workload.checkpointing, "--checkpointing"),
        (workload.precision not in (Precision.FP32, Precision.TF32), "--precision"),
    ):
        if given:
            raise BadInput(
                f"{option} is not followed for ONNX; the model file says what is computed, and in which type."
            )
