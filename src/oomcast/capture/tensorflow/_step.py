"""A Keras model's training step, traced and not run: its graph, its variables, its batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from oomcast.errors import BadInput
from oomcast.trace import Category
from oomcast.workload import Workload

__all__ = ["TracedStep", "TracedVariable", "batch_form", "model_variables", "trace_step"]


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
