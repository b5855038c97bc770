"""In the capture process: answer one request about an ONNX model."""

from __future__ import annotations

import contextlib
import importlib
import sys

from oomcast.errors import OomcastError
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._explain import answer_with
from .._frameworks import missing_framework
from .._messages import Answer, Request

__all__ = ["answer_request", "prepare_process"]


def prepare_process() -> None:
    """Load what is there; whether it is there is said when a request comes."""
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("onnx")


def answer_request(request: Request) -> Answer:
    return answer_with(_capture, _special, request)


def _capture(request: Request) -> Trace:
    prepare_process()
    if "onnx" not in sys.modules:
        raise missing_framework("onnx", "onnx")
    from ._capture import capture_here

    return capture_here(request.workload)


def _special(error: BaseException, workload: Workload) -> OomcastError | None:
    return None
