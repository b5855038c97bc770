"""What the capture process must know of TensorFlow and Keras. They are loaded when a hook is called, not before."""

from __future__ import annotations

import os
import traceback

from ...errors import JobFailed, OomcastError
from ...spec import Spec
from ...trace import Trace
from ..explain import first_sentence, users_lines
from ..hooks import Hooks

__all__ = ["HOOKS"]


def _set_up() -> None:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # nothing runs, and it greets every process with two lines
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # What is captured is described, never run on a card that may be in use.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def _capture(spec: Spec) -> Trace:
    from .run import capture_here

    return capture_here(spec)


def _explain(error: BaseException, spec: Spec) -> OomcastError | None:
    """What only TensorFlow and Keras raise."""
    reference, lines, text = spec.workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
    if "Op type not registered" in str(error) or "not registered in the binary" in str(error):
        return JobFailed(
            f"{reference} uses a custom operator that this TensorFlow does not have ({text}); "
            "load its library in the job file with tf.load_op_library.",
            lines,
        )
    frames = traceback.extract_tb(error.__traceback__)
    loads = any(f"keras{os.sep}src{os.sep}saving" in f.filename or "saved_model" in f.filename for f in frames)
    if loads and not isinstance(error, OSError):
        return JobFailed(
            f"{reference} loads a saved model that this Keras cannot read, most likely of another version ({text}); "
            "save it again as .keras with the installed version, or build the model in the job file.",
            lines,
        )
    return None


HOOKS = Hooks(
    framework="tensorflow",
    packages=("tensorflow", "keras"),
    least={"tensorflow": "2.16", "keras": "3.5"},
    capture=_capture,
    set_up=_set_up,
    explain=_explain,
)
