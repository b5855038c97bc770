"""A `tf.Module`: trained as people train one, by a tape and an optimizer, in a `tf.function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ...errors import BadInput
from ...spec import JobPhase, Precision, Workload
from ..job_files import JobFunctions
from ..keras_models import chosen_optimizer
from .graph import LOSS_SCOPE

__all__ = ["Module"]


class Module:
    """With what is asked of a Keras model: its variables, its optimizer and its steps."""

    metrics_variables = ()
    note = (
        "A tf.Module is taken to run in a tf.function without jit_compile; its loss is loss(model, batch) of the job, "
        "else the softmax cross entropy of logits where the labels number classes, else the mean squared error"
    )

    def __init__(self, module: Any, job: JobFunctions, batch: Any, workload: Workload) -> None:
        if workload.precision not in (Precision.FP32, Precision.TF32):
            raise BadInput(
                f"--precision {workload.precision.value} is not followed for a tf.Module, which says itself in which "
                "types it computes; leave it out."
            )
        if not callable(module) and (job.loss is None or workload.phase is JobPhase.INFERENCE):
            raise BadInput(
                f"the tf.Module of {workload.job.name} has no __call__; give it one, or write loss(model, batch)."
            )
        labelled = isinstance(batch, tuple) and len(batch) == 2
        if job.loss is None and workload.phase is not JobPhase.INFERENCE and not labelled:
            raise BadInput("batch() returned no labels; return (x, y), or write loss(model, batch) in the job file.")
        self._module = module
        self._loss: Callable[[Any, Any], Any] = job.loss or _loss
        self._first_call(batch)
        self.optimizer: Any = (
            chosen_optimizer(None, job.optimizer, workload) if workload.phase is JobPhase.TRAINING else None
        )

    @property
    def variables(self) -> tuple[Any, ...]:
        return tuple(self._module.variables)

    @property
    def trainable_variables(self) -> list[Any]:
        return list(self._module.trainable_variables)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = self._loss(self._module, data)
        variables = self.trainable_variables
        self.optimizer.apply(tape.gradient(value, variables), variables)
        return value

    def test_step(self, data: Any) -> Any:
        return self._loss(self._module, data)

    def predict_step(self, data: Any) -> Any:
        return self._module(data[0] if isinstance(data, tuple) else data)

    def _first_call(self, batch: Any) -> None:
        """Many make their variables when they are called first."""
        if not callable(self._module):
            return
        x = batch[0] if isinstance(batch, tuple) else batch
        make = tf.zeros if tf.executing_eagerly() else _placeholder
        self._module(tf.nest.map_structure(lambda spec: make(spec.shape, spec.dtype), x))


def _placeholder(shape: Any, dtype: Any) -> Any:
    return tf.compat.v1.placeholder(dtype, shape)


def _loss(module: Any, batch: Any) -> Any:
    x, y = batch
    output = module(x)
    with tf.name_scope(LOSS_SCOPE):
        if y.dtype.is_integer:
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=output))
        return tf.reduce_mean(tf.math.squared_difference(output, y))
