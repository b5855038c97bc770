"""A Keras job's training step: compiled with what the job leaves open, then traced and not run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import tensorflow as tf
from keras.src.trainers import trainer

from ...errors import BadInput
from ...spec import JobPhase, Workload
from ...trace import Category
from ..job_files import JobFunctions
from ..keras_models import compile_as_asked, has_weights
from .mirrored import followed_replica, on_each_gpu

__all__ = [
    "TracedStep",
    "TracedVariable",
    "batch_form",
    "choosing_as_on_a_gpu",
    "compiled",
    "model_variables",
    "own_step",
    "trace_step",
]


def compiled(model: Any, job: JobFunctions, batch: Any, workload: Workload) -> bool:
    """Compile the model, as the job did it if it did; whether its step is XLA's on a GPU."""
    if not has_weights(model):
        _build(model, batch)
    if workload.phase is not JobPhase.INFERENCE:
        compile_as_asked(model, batch, job.loss, job.optimizer, workload)
    return bool(model.jit_compile)


@contextlib.contextmanager
def choosing_as_on_a_gpu() -> Iterator[None]:
    """Keras finds a GPU where it looks for one: it then has XLA compile models that do not forbid it."""

    def chosen(model: Any) -> bool:
        return not model._distribute_strategy and bool(trainer.model_supports_jit(model))

    with (
        mock.patch("keras.src.backend.tensorflow.rnn._is_gpu_available", return_value=True),
        mock.patch.object(trainer.Trainer, "_resolve_auto_jit_compile", chosen),
    ):
        yield


def _build(model: Any, batch: Any) -> None:
    """By calling it, as the first batch would: not every subclassed model can be built from shapes."""
    if tf.executing_eagerly():
        model(tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), _inputs(batch)))
    else:
        placeholder = tf.compat.v1.placeholder
        with tf.name_scope("build"):
            model(tf.nest.map_structure(lambda spec: placeholder(spec.dtype, spec.shape), _inputs(batch)))


def own_step(model: Any, loss: Callable[[Any, Any], Any] | None, phase: JobPhase) -> Callable[[Any], Any] | None:
    """The step of a job that has its own `loss(model, batch)`; None: Keras' own."""
    if loss is None or phase is JobPhase.INFERENCE:
        return None
    if phase is JobPhase.EVAL:
        return lambda data: loss(model, data)

    def step(data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(model, data)
            scaled = model.optimizer.scale_loss(value)
        gradients = tape.gradient(scaled, [variable.value for variable in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return value

    return step


def _inputs(batch: Any) -> Any:
    return batch[0] if isinstance(batch, tuple) else batch


@dataclass(frozen=True)
class TracedVariable:
    handle: Any
    """The graph's input for it; None if the step does not use it."""
    name: str
    shape: tuple[int, ...]
    dtype: Any
    category: Category


@dataclass(frozen=True)
class TracedStep:
    function: Callable[[Any], Any]
    """The step, which takes the batch's tensors one by one; only a model with real weights can run it."""
    graph: Any
    """Its `FuncGraph`."""
    variables: tuple[TracedVariable, ...]
    """In the order in which they are made."""
    batch: tuple[Any, ...]
    """`TensorSpec`s, in the order of the graph's inputs."""
    captures: tuple[Any, ...]
    """The graph's inputs for tensors from outside that are not variables."""
    optimizer_scope: str
    evaluates: bool = False
    """Whether it takes no gradients."""
    mirrors: Sequence[Any] = ()
    """The graph's inputs for variables of other GPUs."""


def trace_step(
    model: Any,
    batch: Any,
    step: Callable[[Any], Any] | None = None,
    *,
    by_xla: bool = False,
    phase: JobPhase = JobPhase.TRAINING,
) -> TracedStep:
    """Trace a step (`model.train_step`) for a batch of that form (arrays or `TensorSpec`s); the model must be compiled.

    Made and traced under a `tf.Graph`, the model's variables are only described: nothing is allocated for them.
    """
    specs = tf.nest.map_structure(_spec, batch)
    trains = phase is JobPhase.TRAINING
    optimizer: Any = model.optimizer if trains else None
    if trains and not optimizer.built:
        optimizer.build(model.trainable_variables)
    run = on_each_gpu(getattr(model, "_distribute_strategy", None), step or _STEPS[phase](model))
    flat = tuple(tf.nest.flatten(specs))
    function = tf.function(lambda *tensors: run(tf.nest.pack_sequence_as(specs, tensors)), jit_compile=by_xla)
    graph = function.get_concrete_function(*flat).graph
    inner = {id(outside): inside for outside, inside in graph.captures}
    trainable = {id(variable) for variable in model.trainable_variables}
    of_optimizer = {id(variable) for variable in optimizer.variables} if trains else set()
    variables, mirrors = [], list[Any]()
    for variable in model_variables(model, with_optimizer=trains):
        category = (
            Category.PARAMETER
            if id(variable) in trainable
            else Category.OPTIMIZER_STATE
            if id(variable) in of_optimizer
            else Category.BUFFER
        )
        own, others = followed_replica(variable)
        mirrors += [inner.pop(id(other.handle)) for other in others if id(other.handle) in inner]
        handle, name = inner.pop(id(own.handle), None), getattr(variable, "path", own.name.removesuffix(":0"))
        variables.append(TracedVariable(handle, name, tuple(variable.shape), own.dtype, category))
    scope = _scope_of(optimizer) if trains else ""
    return TracedStep(function, graph, tuple(variables), flat, tuple(inner.values()), scope, not trains, mirrors)


_STEPS: dict[JobPhase, Callable[[Any], Callable[[Any], Any]]] = {
    JobPhase.TRAINING: lambda model: model.train_step,
    JobPhase.EVAL: lambda model: model.test_step,
    JobPhase.INFERENCE: lambda model: model.predict_step,
}
"""What `fit`, `evaluate` and `predict` run for a batch."""


def batch_form(batch: Any, workload: Workload) -> Any:
    """What `batch()` returned (arrays, tensors, specs, in tuples and dicts) as `TensorSpec`s, (x, y) as a tuple.

    A whole `tf.data.Dataset` stands for its batches, whose first dimension is the batch size if it is left open.
    """
    if isinstance(batch, tf.data.Dataset):
        batch = tf.nest.map_structure(lambda spec: _sized(spec, workload.batch_size), batch.element_spec)
    if isinstance(batch, list):
        batch = tuple(batch)
    try:
        specs = tf.nest.map_structure(_spec, batch)
    except (AttributeError, TypeError) as error:
        raise BadInput(
            f"batch() in {workload.job.name} returned something without a shape and a dtype; return arrays or "
            "tf.TensorSpec, as (x, y)."
        ) from error
    for spec in tf.nest.flatten(specs):
        if spec.shape.rank is None or None in spec.shape.as_list():
            raise BadInput(
                f"batch() in {workload.job.name} leaves a dimension open ({spec.shape}); give every dimension a size."
            )
    return specs


def _sized(spec: Any, batch_size: int | None) -> Any:
    """A data set's batches, of which the last may be smaller: their size is open in its description."""
    if batch_size is None or spec.shape.rank in (None, 0) or spec.shape[0] is not None:
        return spec
    return tf.TensorSpec((batch_size, *spec.shape[1:]), spec.dtype)


def model_variables(model: Any, *, with_optimizer: bool = True) -> list[Any]:
    """All that is kept: weights, in training the optimizer's, metrics; each once."""
    of_optimizer = model.optimizer.variables if with_optimizer else ()
    everything = (*model.variables, *of_optimizer, *model.metrics_variables)
    return list({id(variable): variable for variable in everything}.values())


def _scope_of(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return str(inner.name).partition("_")[0]


def _spec(array: Any) -> Any:
    return array if isinstance(array, tf.TensorSpec) else tf.TensorSpec(tuple(array.shape), tf.as_dtype(array.dtype))
