"""From a Keras job to its Trace: its step is traced; variables are made, batches come, the step runs some times."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from ...errors import BadInput
from ...spec import Precision, Workload
from ...trace import Category, Phase, Trace
from ..frameworks import check_framework
from ..job_files import JobFunctions, job_functions
from .executor import Executor
from .graph import OutputSpec, compile_graph
from .memory import Memory, Value
from .operators import Operators, Variable
from .step import TracedStep, batch_form, compiled, own_step, trace_step

__all__ = ["capture_here", "follow"]


def follow(
    step: TracedStep,
    steps: int,
    *,
    on_gpu: bool = True,
    versions: dict[str, str],
    workload: dict[str, object],
    assumptions: Iterable[str] = (),
) -> Trace:
    """Run the step `steps` times. With `on_gpu`, only what lies in the GPU's memory is counted."""
    memory = Memory()
    executor = Executor(memory, Operators(), on_gpu=on_gpu)
    graph = compile_graph(step.graph, step.optimizer_scope)
    by_argument: dict[int, Value] = {}
    for variable in step.variables:
        value = Value(variable.shape, variable.dtype.name, variable.dtype.size)
        if not executor.on_host(value.dtype, value.shape):
            value.buffer = memory.new(
                value.shape, value.dtype, value.itemsize, "variable", variable.name, variable.category
            )
        memory.hold(value)
        if variable.handle is not None:
            by_argument[id(variable.handle)] = Value(
                (), "resource", 0, payload=Variable(variable.name, value, variable.category)
            )
    for tensor in step.captures:
        spec = OutputSpec(tuple(tensor.shape.as_list()), tensor.dtype.name, tensor.dtype.size)
        value = Value(spec.shape or (), spec.dtype, spec.itemsize)
        value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "capture", "", Category.BUFFER)
        memory.hold(value)
        by_argument[id(tensor)] = value
    for number in range(steps):
        memory.enter(Phase.INPUT, number)
        batch = []
        for spec in step.batch:
            value = Value(tuple(spec.shape.as_list()), spec.dtype.name, spec.dtype.size)
            if not executor.on_host(value.dtype, value.shape):
                value.buffer = memory.new(value.shape, value.dtype, value.itemsize, "input", "", Category.INPUT)
            memory.hold(value)
            batch.append(value)
        memory.enter(Phase.FORWARD, number)
        places = iter(batch)
        arguments = [by_argument[id(t)] if id(t) in by_argument else next(places) for t in step.graph.inputs]
        for value in arguments:
            memory.hold(value)
        for result in executor.run(graph, arguments, outermost=True):
            memory.drop(result)
        for value in batch:
            memory.drop(value)
    memory.note_all(executor.unsupported, (*assumptions, *executor.assumptions))
    return memory.trace(versions, workload)


_POLICIES = {
    Precision.AMP_FP16: "mixed_float16",
    Precision.AMP_BF16: "mixed_bfloat16",
    Precision.BF16: "bfloat16",
}
_GROWING = (
    "TensorFlow takes nearly all of a card at its start unless memory growth is on (TF_FORCE_GPU_ALLOW_GROWTH=true); "
    "the figures are those of a pool that grows with the job."
)


def capture_here(workload: Workload, *, on_gpu: bool = True) -> Trace:
    """The Trace of a workload, captured in this process; with `on_gpu` false, as the step would run on a CPU."""
    _check_options(workload)
    keras.config.set_dtype_policy(_POLICIES.get(workload.precision, "float32"))
    assumptions: list[str] = [_GROWING] if on_gpu else []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        job = job_functions(workload)
        batch = batch_form(job.batch(), workload)
        with mock.patch("keras.src.backend.tensorflow.rnn._is_gpu_available", return_value=on_gpu):
            step = _traced(job, batch, workload, assumptions)
        versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
        return follow(
            step,
            workload.steps,
            on_gpu=on_gpu,
            versions=versions,
            workload=workload.as_dict(),
            assumptions=assumptions,
        )


def _traced(job: JobFunctions, batch: Any, workload: Workload, assumptions: list[str]) -> TracedStep:
    """Under a graph the model's weights are only described. Code that needs their values gets real ones."""

    def trace(note: Callable[[str], None]) -> TracedStep:
        model = job.model()
        check_framework(model, "tensorflow")
        if not isinstance(model, keras.Model):
            raise BadInput(f"model() in {workload.job.name} returned {type(model).__name__}; return a keras.Model.")
        compiled(model, job, batch, workload, note)
        return trace_step(model, batch, own_step(model, job.loss))

    notes: list[str] = []
    try:
        with tf.Graph().as_default():
            step = trace(notes.append)
    except (BadInput, SystemExit, KeyboardInterrupt):
        raise
    except Exception:
        notes = ["The model was built with real weights, since its code needs their values."]
        step = trace(notes.append)
    assumptions += notes
    return step


def _check_options(workload: Workload) -> None:
    if workload.accumulation > 1:
        raise BadInput(
            "--accumulation is not followed for TensorFlow; compile the model in the job file with an optimizer that "
            "has gradient_accumulation_steps."
        )
    if workload.checkpointing:
        raise BadInput(
            "--checkpointing is not followed for TensorFlow; build the model under keras.RematScope instead."
        )
