"""In the capture process: answer one request about a Keras job."""

from __future__ import annotations

import os
import sys
import traceback

from oomcast.errors import JobFailed, OomcastError
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._explain import answer_with, first_sentence, users_lines
from .._frameworks import load_packages, require_packages
from .._messages import Answer, Request

__all__ = ["answer_request", "prepare_process"]

_PACKAGES = ("tensorflow", "keras")

_RECURSION_LIMIT = 20_000


def prepare_process() -> None:
    """Load what is there; whether all is there is said when a request comes."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["KERAS_BACKEND"] = "tensorflow"
    # What is captured is described, never run on a card that may be in use.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    load_packages(_PACKAGES)


def answer_request(request: Request) -> Answer:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    return answer_with(_capture, _special, request)


def _capture(request: Request) -> Trace:
    prepare_process()
    require_packages("tensorflow", _PACKAGES)
    from ._capture import capture_here

    return capture_here(request.workload)


def _special(error: BaseException, workload: Workload) -> OomcastError | None:
    """What only TensorFlow and Keras raise."""
    reference, lines, text = workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
    if "Op type not registered" in str(error) or "not registered in the binary" in str(error):
        return JobFailed(
            f"{reference} uses a custom operator that this TensorFlow does not have ({text}); "
            "load its library in the job file with tf.load_op_library.",
            lines,
        )
    frames = traceback.extract_tb(error.__traceback__)
    loads = any(f"keras{os.sep}src{os.sep}saving" in f.filename or "saved_model" in f.filename for f in frames)
    if loads and not isinstance(error, (OomcastError, OSError)):
        return JobFailed(
            f"{reference} loads a saved model that this Keras cannot read, most likely of another version ({text}); "
            "save it again as .keras with the installed version, or build the model in the job file.",
            lines,
        )
    return None
