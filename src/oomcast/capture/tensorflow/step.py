"""A Keras job's training step: compiled with what the job leaves open, then traced and not run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from ...errors import BadInput
from ...spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, Workload, missing_optimizer
from ...trace import Category
from ..job_files import JobFunctions

__all__ = ["TracedStep", "TracedVariable", "batch_form", "compiled", "model_variables", "own_step", "trace_step"]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    name: functools.partial(getattr(keras.optimizers, kind.class_name), 1e-3, **kind.options)
    for name, kind in OPTIMIZER_KINDS.items()
    if hasattr(keras.optimizers, kind.class_name)  # those of libraries for torch are not there
}
"""Name → what makes it."""


def compiled(model: Any, job: JobFunctions, batch: Any, workload: Workload, note: Callable[[str], None]) -> None:
    """Compile the model for one step in TensorFlow's own executor; what the job compiled itself stays.

    The optimizer is the one that was asked for, else the job's, else the model's, else AdamW.
    """
    if not model.built:
        with tf.init_scope() if tf.executing_eagerly() else tf.name_scope("build"):
            model.build(tf.nest.map_structure(lambda spec: spec.shape, _inputs(batch)))
    was_compiled = bool(model.compiled)
    if not was_compiled or model.jit_compile is not False:
        note(
            "Keras compiles the step with XLA on a GPU unless the model is compiled with jit_compile=False; what was "
            "followed is TensorFlow's own executor, which fuses less and mostly holds more."
        )
    optimizer = _optimizer(model if was_compiled else None, job, workload)
    if was_compiled and optimizer is model.optimizer:
        model.jit_compile = False
        return
    loss = model._compile_config.config.get("loss") if was_compiled else _loss(model, batch, job)
    metrics = model._compile_config.config.get("metrics") if was_compiled else None
    model.compile(optimizer=optimizer, loss=loss, metrics=metrics, jit_compile=False)


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
    """The compiled step; only a model with real weights can run it."""
    graph: Any
    """Its `FuncGraph`."""
    variables: tuple[TracedVariable, ...]
    """In the order in which they are made."""
    batch: tuple[Any, ...]
    """`TensorSpec`s, in the order of the graph's inputs."""
    captures: tuple[Any, ...]
    """The graph's inputs for tensors from outside that are not variables."""
    optimizer_scope: str


def trace_step(model: Any, batch: Any, step: Callable[[Any], Any] | None = None) -> TracedStep:
    """Trace a step (`model.train_step`) for a batch of that form (arrays or `TensorSpec`s); the model must be compiled.

    Made and traced under a `tf.Graph`, the model's variables are only described: nothing is allocated for them.
    """
    specs = tf.nest.map_structure(_spec, batch)
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    run = step or model.train_step
    function = tf.function(lambda data: run(data), jit_compile=False)
    graph = function.get_concrete_function(specs).graph
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
    flat = tuple(tf.nest.flatten(specs))
    return TracedStep(function, graph, tuple(variables), flat, tuple(inner.values()), _scope_of(optimizer))


def batch_form(batch: Any, workload: Workload) -> Any:
    """What `batch()` returned (arrays, tensors, specs, in tuples and dicts) as `TensorSpec`s, (x, y) as a tuple."""
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


def model_variables(model: Any) -> list[Any]:
    """All that training keeps: weights, optimizer, metrics; each once."""
    everything = (*model.variables, *model.optimizer.variables, *model.metrics_variables)
    return list({id(variable): variable for variable in everything}.values())


def _scope_of(optimizer: Any) -> str:
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return str(inner.name).partition("_")[0]


def _spec(array: Any) -> Any:
    return array if isinstance(array, tf.TensorSpec) else tf.TensorSpec(tuple(array.shape), tf.as_dtype(array.dtype))
