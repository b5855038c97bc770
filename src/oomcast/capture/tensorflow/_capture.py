"""From a Keras job to its Trace."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable
from typing import Any
from unittest import mock

import keras
import tensorflow as tf

from oomcast.errors import BadInput
from oomcast.trace import Trace
from oomcast.workload import Precision, Workload

from .._frameworks import check_framework
from .._job_files import JobFunctions, job_functions
from ._compile import compiled, own_step
from ._run import follow
from ._step import TracedStep, batch_form, trace_step

__all__ = ["capture_here"]

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
