"""A Keras job's training step: compiled with what the job leaves open, then traced and not run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import keras
import tensorflow as tf
from keras.src.trainers import trainer

from ...errors import BadInput
from ...spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, Workload, missing_optimizer
from ...trace import Category
from ..job_files import JobFunctions

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

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    name: functools.partial(getattr(keras.optimizers, kind.class_name), 1e-3, **kind.options)
    for name, kind in OPTIMIZER_KINDS.items()
    if hasattr(keras.optimizers, kind.class_name)  # those of libraries for torch are not there
}
"""Name → what makes it."""


def compiled(model: Any, job: JobFunctions, batch: Any, workload: Workload) -> bool:
    """Compile the model, as the job did it if it did; whether its step is XLA's on a GPU.

    The optimizer is the one that was asked for, else the job's, else the model's, else AdamW.
    """
    if not _has_weights(model):
        _build(model, batch)
    was_compiled = bool(model.compiled)
    optimizer = _optimizer(model if was_compiled else None, job, workload)
    if not was_compiled:
        model.compile(optimizer=optimizer, loss=_loss(model, batch, job))
    elif optimizer is not model.optimizer:
        told = model._compile_config.config
        model.compile(
            optimizer=optimizer, loss=told.get("loss"), metrics=told.get("metrics"), jit_compile=model.jit_compile
        )
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


def _has_weights(model: Any) -> bool:
    """A subclassed model calls itself built when Keras has looked at it; its layers may have nothing yet."""
    return bool(model.built) and all(layer.built for layer in model._flatten_layers())


def _build(model: Any, batch: Any) -> None:
    """By calling it, as the first batch would: not every subclassed model can be built from shapes."""
    if tf.executing_eagerly():
        model(tf.nest.map_structure(lambda spec: tf.zeros(spec.shape, spec.dtype), _inputs(batch)))
    else:
        placeholder = tf.compat.v1.placeholder
        with tf.name_scope("build"):
            model(tf.nest.map_structure(lambda spec: placeholder(spec.dtype, spec.shape), _inputs(batch)))


def own_step(model: Any, loss: Callable[[Any, Any], Any] | None) -> Callable[[Any], Any] | None:
    """The step of a job that has its own `loss(model, batch)`; None: Keras' own."""
    if loss is None:
        return None

    def step(data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(model, data)
            scaled = model.optimizer.scale_loss(value)
        gradients = tape.gradient(scaled, [variable.value for variable in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return value

    return step


def _optimizer(model: Any | None, job: JobFunctions, workload: Workload) -> Any:
    if workload.optimizer is not None:
        if workload.optimizer not in OPTIMIZERS:
            raise missing_optimizer("Keras", workload.optimizer, OPTIMIZERS)
        return OPTIMIZERS[workload.optimizer]()
    if job.optimizer is not None:
        found = job.optimizer(model.trainable_variables if model is not None else None)
        if not isinstance(found, keras.optimizers.Optimizer):
            raise BadInput(f"optimizer() in {workload.job.name} returned no optimizer of Keras.")
        return found
    return model.optimizer if model is not None and model.optimizer is not None else OPTIMIZERS[DEFAULT_OPTIMIZER]()


def _loss(model: Any, batch: Any, job: JobFunctions) -> Any:
    """Cross entropy where the labels number classes, else the mean squared error."""
    if job.loss is not None:
        return None
    if not isinstance(batch, tuple) or len(batch) < 2:
        raise BadInput("batch() returned no labels; return (x, y), or compile the model, or write loss(model, batch).")
    labels = tf.nest.flatten(batch[1])
    if len(labels) == 1 and labels[0].dtype.is_integer:
        return "sparse_categorical_crossentropy"
    return "mean_squared_error"


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


def trace_step(model: Any, batch: Any, step: Callable[[Any], Any] | None = None, *, by_xla: bool = False) -> TracedStep:
    """Trace a step (`model.train_step`) for a batch of that form (arrays or `TensorSpec`s); the model must be compiled.

    Made and traced under a `tf.Graph`, the model's variables are only described: nothing is allocated for them.
    """
    specs = tf.nest.map_structure(_spec, batch)
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    run = step or model.train_step
    flat = tuple(tf.nest.flatten(specs))
    function = tf.function(lambda *tensors: run(tf.nest.pack_sequence_as(specs, tensors)), jit_compile=by_xla)
    graph = function.get_concrete_function(*flat).graph
    inner = {id(outside): inside for outside, inside in graph.captures}
    trainable = {id(variable) for variable in model.trainable_variables}
    of_optimizer = {id(variable) for variable in optimizer.variables}
    variables = []
    for variable in model_variables(model):
        category = (
            Category.PARAMETER
            if id(variable) in trainable
            else Category.OPTIMIZER_STATE
            if id(variable) in of_optimizer
            else Category.BUFFER
        )
        handle = inner.pop(id(variable.value.handle), None)
        variables.append(TracedVariable(handle, variable.path, tuple(variable.shape), variable.value.dtype, category))
    return TracedStep(function, graph, tuple(variables), flat, tuple(inner.values()), _scope_of(optimizer))


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


def model_variables(model: Any) -> list[Any]:
    """All that training keeps: weights, optimizer, metrics; each once."""
    everything = (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    return list({id(variable): variable for variable in everything}.values())


def _scope_of(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return str(inner.name).partition("_")[0]


def _spec(array: Any) -> Any:
    return array if isinstance(array, tf.TensorSpec) else tf.TensorSpec(tuple(array.shape), tf.as_dtype(array.dtype))
