"""The step of a Keras model that computes with JAX: Keras' own, which it compiles with its state donated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import keras

from ...errors import BadInput
from ...spec import JobPhase, Workload
from ...trace import Category
from ..job_files import JobFunctions
from ..keras_models import compile_as_asked, has_weights, outputs_are_kept, refuse_options
from .step import TrainingStep

__all__ = ["keras_step"]

_HELD = {
    JobPhase.TRAINING: (Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.BUFFER),
    JobPhase.EVAL: (Category.PARAMETER, Category.BUFFER, Category.BUFFER),
    JobPhase.INFERENCE: (Category.PARAMETER, Category.BUFFER),
}
"""What the state of such a step is: weights, what is not trained, the optimizer's, and the metrics'."""


def keras_step(model: Any, job: JobFunctions, batch: Any, workload: Workload) -> TrainingStep:
    """`model` was built in a trace, so that its weights are only described."""
    refuse_options(workload, "Keras")
    if job.loss is not None:
        raise BadInput(
            f"loss() in {workload.job.name} is not followed for a Keras model on JAX; compile the model with that loss."
        )
    if job.shardings is not None or isinstance(keras.distribution.distribution(), keras.distribution.ModelParallel):
        raise BadInput(
            f"{workload.job.name} places the parameters of its Keras model, which is not followed; over several GPUs "
            "the batch is divided and all else whole on each, as keras.distribution.DataParallel has it."
        )
    phase = workload.phase
    batch = batch if phase is not JobPhase.INFERENCE or not isinstance(batch, tuple) else (batch[0],)
    jax.eval_shape(lambda: _prepare(model, job, batch, workload))
    if not model.jit_compile or model.run_eagerly:
        raise BadInput(
            f"{workload.job.name} compiles its model with jit_compile=False or run_eagerly=True: on JAX each operator "
            "then runs by itself, which is not followed; leave that out."
        )
    names, state = zip(*(_named(variables) for variables in _state(model, phase)), strict=True)
    run: Callable[[Any, Any], Any] = {
        JobPhase.TRAINING: model.train_step,
        JobPhase.EVAL: model.test_step,
        JobPhase.INFERENCE: model.predict_step,
    }[phase]

    def step(*arguments: Any) -> Any:
        *given, data = arguments
        values = tuple([part[name] for name in order] for part, order in zip(given, names, strict=True))
        told, after = run(values, data)
        if phase is JobPhase.INFERENCE:  # Keras puts the weights beside what predict_step returns
            after = (values[0], after)
        return (*(dict(zip(order, part, strict=True)) for order, part in zip(names, after, strict=True)), told)

    return TrainingStep(
        # As in Keras' own make_train_function.
        jax.jit(step, donate_argnums=tuple(range(len(state))), keep_unused=True),
        (*state, batch),
        (*_HELD[phase], Category.INPUT),
        _HELD[phase],
        donates=True,
        evaluates=phase is not JobPhase.TRAINING,
        notes=outputs_are_kept(phase),
        versions={"keras": keras.__version__},
    )


def _prepare(model: Any, job: JobFunctions, batch: Any, workload: Workload) -> None:
    """Weights, optimizer and metrics are made, as the first batch would."""
    if workload.phase is JobPhase.INFERENCE:
        if not has_weights(model):
            keras.backend.compute_output_spec(model, keras.tree.map_structure(_symbol, batch[0]))
        return
    compile_as_asked(model, batch, None, job.optimizer, workload)
    model._symbolic_build(data_batch=batch)


def _symbol(leaf: Any) -> Any:
    return keras.KerasTensor(leaf.shape, keras.backend.standardize_dtype(leaf.dtype))


def _state(model: Any, phase: JobPhase) -> Sequence[Sequence[Any]]:
    weights = (model.trainable_variables, model.non_trainable_variables)
    if phase is JobPhase.INFERENCE:
        return weights
    if phase is JobPhase.EVAL:
        return (*weights, model.metrics_variables)
    return (*weights, model.optimizer.variables, model.metrics_variables)


def _named(variables: Sequence[Any]) -> tuple[list[str], dict[str, Any]]:
    """Their names in Keras' order, each once, and their forms by name."""
    names: list[str] = []
    forms = {}
    for number, variable in enumerate(variables):
        name = variable.path if variable.path not in forms else f"{variable.path}.{number}"
        names.append(name)
        forms[name] = jax.ShapeDtypeStruct(tuple(variable.shape), variable.dtype)
    return names, forms
