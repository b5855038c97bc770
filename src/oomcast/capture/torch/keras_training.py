"""Keras models that compute with torch: their steps are Keras' own, with Keras' losses and optimizers."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from ...errors import BadInput
from ...spec import JobKind, JobPhase, Precision, Workload, ZeroGrad
from ...trace import Category, Phase
from .jobs import LoadedJob
from .machine import VirtualGpu

__all__ = ["is_keras_model", "run_keras"]


def is_keras_model(model: nn.Module) -> bool:
    """Keras is loaded where such a model is."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Model)


def run_keras(virtual: VirtualGpu, model: Any, job: LoadedJob, workload: Workload) -> None:
    """What `fit`, `evaluate` or `predict` does for some batches. Keras has put the weights on the GPU."""
    import keras

    from ..keras_models import compile_as_asked, has_weights, outputs_are_kept

    _check(job, workload)
    phase = workload.phase
    batch = _on_host(job.batch(), with_labels=phase is not JobPhase.INFERENCE)
    if phase is not JobPhase.INFERENCE:
        compile_as_asked(model, batch, None, job.optimizer, workload)
        model._symbolic_build(data_batch=batch)
    elif not has_weights(model):
        symbols = keras.tree.map_structure(lambda x: keras.KerasTensor(x.shape, _type(x)), batch[0])
        keras.backend.compute_output_spec(model, symbols)
    virtual.adopt_model(model)
    for sentence in outputs_are_kept(phase):
        virtual.ledger.assume(sentence)
    kept: list[Any] = []
    step = _step(virtual, model, phase)
    for number in range(workload.steps):
        virtual.enter(Phase.INPUT, number)
        virtual.enter(Phase.FORWARD if phase is JobPhase.TRAINING else Phase.EVALUATION, number)
        kept[:] = [step([batch])]  # until the next one takes its place
        if phase is JobPhase.TRAINING:
            virtual.label([variable.value for variable in model.optimizer.variables], Category.OPTIMIZER_STATE)
    virtual.job_ends()


def _step(virtual: VirtualGpu, model: Any, phase: JobPhase) -> Any:
    """The function that Keras makes for a batch, compiled if the model is."""
    if phase is JobPhase.INFERENCE:
        model.eval()
        model.make_predict_function()
        return model.predict_function
    if phase is JobPhase.EVAL:
        model.eval()
        model.make_test_function()
        return model.test_function
    apply = model.optimizer.apply

    def applied(*arguments: Any, **options: Any) -> Any:
        virtual.enter(Phase.OPTIMIZER)
        return apply(*arguments, **options)

    model.optimizer.apply = applied
    model.train()
    model.make_train_function()
    return model.train_function


def _on_host(batch: Any, *, with_labels: bool) -> tuple[Any, ...]:
    """As Keras' data adapters hand it on: torch's tensors on the host, floats of Keras' type."""
    import keras
    import numpy

    def tensor(leaf: Any) -> torch.Tensor:
        if isinstance(leaf, torch.Tensor):
            return leaf
        array = numpy.asarray(leaf)
        if array.dtype.kind == "f":
            array = array.astype(keras.config.floatx())
        return torch.from_numpy(array)

    batch = tuple(batch) if isinstance(batch, (list, tuple)) else (batch,)
    return tuple(keras.tree.map_structure(tensor, part) for part in (batch if with_labels else batch[:1]))


def _type(leaf: torch.Tensor) -> str:
    import keras

    return str(keras.backend.standardize_dtype(leaf.dtype))


def _check(job: LoadedJob, workload: Workload) -> None:
    """Raises BadInput for what is asked of torch's own training loop, which is not run here."""
    from ..keras_models import refuse_options

    refuse_options(workload, "Keras")
    if workload.job.kind not in (JobKind.FILE, JobKind.OBJECT) or job.loader is not None:
        raise BadInput("a Keras model is followed from a job file with batch(batch_size), without batches().")
    if job.loss is not None:
        raise BadInput(
            f"loss() in {workload.job.name} is not followed for a Keras model on torch; compile the model with it."
        )
    asked = {
        "--parallel": workload.parallel is not None,
        "--compile": bool(workload.compile),
        "--channels-last": workload.channels_last,
        "--zero-grad": workload.zero_grad is not ZeroGrad.BEFORE_FORWARD,
        "--keep-gradients": not workload.set_to_none,
        "--blocks": workload.blocks is not None,
    }
    for option, is_asked in asked.items():
        if is_asked:
            raise BadInput(f"{option} is not followed for a Keras model on torch; leave it out.")
    if workload.precision not in (Precision.FP32, Precision.TF32):
        raise BadInput(
            f"--precision {workload.precision.value} is not followed for a Keras model on torch; call "
            "keras.config.set_dtype_policy in the job file before the model is built."
        )
    if workload.phase is JobPhase.GENERATE:
        raise BadInput("generating is for models of transformers (hf:NAME); use --phase inference.")
