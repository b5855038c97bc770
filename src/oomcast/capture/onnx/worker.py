"""In the capture process: answer one request about an ONNX model."""

from __future__ import annotations

from oomcast.errors import OomcastError
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._explain import answer_with
from .._frameworks import load_packages, require_packages
from .._messages import Answer, Request

__all__ = ["answer_request", "prepare_process"]

_PACKAGES = ("onnx",)


def prepare_process() -> None:
    """Load what is there; whether it is there is said when a request comes."""
    load_packages(_PACKAGES)


def answer_request(request: Request) -> Answer:
    return answer_with(_capture, _special, request)


def _capture(request: Request) -> Trace:
    prepare_process()
    require_packages("onnx", _PACKAGES)
    from ._capture import capture_here

    return capture_here(request.workload)


def _special(error: BaseException, workload: Workload) -> OomcastError | None:
    return None
