"""What Keras models have in common, whatever Keras computes with: how they are compiled for a job's step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras

from ..errors import BadInput
from ..spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, JobPhase, Precision, Workload, missing_optimizer
from .only_torch import refuse_options_of_torch

__all__ = [
    "OPTIMIZERS",
    "POLICIES",
    "chosen_optimizer",
    "compile_as_asked",
    "has_weights",
    "outputs_are_kept",
    "refuse_options",
]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    name: functools.partial(getattr(keras.optimizers, kind.class_name), 1e-3, **kind.options)
    for name, kind in OPTIMIZER_KINDS.items()
    if hasattr(keras.optimizers, kind.class_name)  # those of libraries for torch are not there
}
"""Name → what makes it."""
POLICIES = {
    Precision.AMP_FP16: "mixed_float16",
    Precision.AMP_BF16: "mixed_bfloat16",
    Precision.BF16: "bfloat16",
}
"""Keras' dtype policies; what is not here is float32."""


def refuse_options(workload: Workload, framework: str) -> None:
    """Of what a model of Keras does by itself, or not at all."""
    refuse_options_of_torch(workload, framework)
    if workload.accumulation > 1:
        raise BadInput(
            f"--accumulation is not followed for {framework}; compile the model in the job file with an optimizer that "
            "has gradient_accumulation_steps."
        )
    if workload.checkpointing:
        raise BadInput(
            f"--checkpointing is not followed for {framework}; build the model under keras.RematScope instead."
        )


def has_weights(model: Any) -> bool:
    """A subclassed model calls itself built when Keras has looked at it; its layers may have nothing yet."""
    return bool(model.built) and all(layer.built for layer in model._flatten_layers())


def compile_as_asked(
    model: Any,
    batch: Any,
    loss: Callable[..., Any] | None,
    optimizer: Callable[[Any], Any] | None,
    workload: Workload,
) -> None:
    """As the job did it if it did; `loss` and `optimizer` are those of the job file.

    The optimizer is the one that was asked for, else the job file's, else the model's, else AdamW.
    """
    was_compiled = bool(model.compiled)
    chosen = chosen_optimizer(model if was_compiled else None, optimizer, workload)
    if not was_compiled:
        model.compile(optimizer=chosen, loss=None if loss is not None else _loss(batch))
    elif chosen is not model.optimizer:
        told = model._compile_config.config
        model.compile(
            optimizer=chosen, loss=told.get("loss"), metrics=told.get("metrics"), jit_compile=model.jit_compile
        )


def chosen_optimizer(model: Any | None, given: Callable[[Any], Any] | None, workload: Workload) -> Any:
    """The one that was asked for, else the job file's (`given`), else that of a compiled model, else AdamW."""
    if workload.optimizer is not None:
        if workload.optimizer not in OPTIMIZERS:
            raise missing_optimizer("Keras", workload.optimizer, OPTIMIZERS)
        return OPTIMIZERS[workload.optimizer]()
    if given is not None:
        found = given(model.trainable_variables if model is not None else None)
        if not isinstance(found, keras.optimizers.Optimizer):
            raise BadInput(f"optimizer() in {workload.job.name} returned no optimizer of Keras.")
        return found
    return model.optimizer if model is not None and model.optimizer is not None else OPTIMIZERS[DEFAULT_OPTIMIZER]()


def _loss(batch: Any) -> Any:
    """Cross entropy where the labels number classes, else the mean squared error."""
    if not isinstance(batch, tuple) or len(batch) < 2:
        raise BadInput("batch() returned no labels; return (x, y), or compile the model, or write loss(model, batch).")
    labels = keras.tree.flatten(batch[1])
    if len(labels) == 1 and keras.backend.is_int_dtype(keras.backend.standardize_dtype(labels[0].dtype)):
        return "sparse_categorical_crossentropy"
    return "mean_squared_error"


def outputs_are_kept(phase: JobPhase) -> tuple[str, ...]:
    """What to tell of `model.predict`, which is not one step."""
    if phase is not JobPhase.INFERENCE:
        return ()
    return (
        "Batches are predicted one by one, as predict_on_batch does, and the last output is kept meanwhile; "
        "model.predict keeps the outputs of all batches on the GPU until it returns, which comes on top",
    )
