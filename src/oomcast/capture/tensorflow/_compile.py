"""What a job leaves open: the optimizer and the loss that its model is compiled with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from oomcast.errors import BadInput
from oomcast.workload import Workload

from .._job_files import JobFunctions

__all__ = ["compiled", "own_step"]

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(1e-3),
    "sgd-momentum": lambda: keras.optimizers.SGD(1e-3, momentum=0.9),
    "adam": lambda: keras.optimizers.Adam(1e-3),
    "adamw": lambda: keras.optimizers.AdamW(1e-3),
    "rmsprop": lambda: keras.optimizers.RMSprop(1e-3),
    "adagrad": lambda: keras.optimizers.Adagrad(1e-3),
    "adafactor": lambda: keras.optimizers.Adafactor(1e-3),
}


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
            raise BadInput(
                f"Keras has no optimizer {workload.optimizer}; choose among {', '.join(OPTIMIZERS)}, without a suffix."
            )
        return OPTIMIZERS[workload.optimizer]()
    if job.optimizer is not None:
        found = job.optimizer(model.trainable_variables if model is not None else None)
        if not isinstance(found, keras.optimizers.Optimizer):
            raise BadInput(f"optimizer() in {workload.job.name} returned no optimizer of Keras.")
        return found
    return model.optimizer if model is not None and model.optimizer is not None else OPTIMIZERS["adamw"]()


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
