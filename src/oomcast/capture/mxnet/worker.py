"""In the capture process: answer one request about an MXNet job."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator

from oomcast.errors import BadInput, OomcastError
from oomcast.trace import Trace
from oomcast.workload import Workload

from .._explain import answer_with, users_lines
from .._frameworks import load_packages, require_packages
from .._messages import Answer, Request
from ._errors import reason

__all__ = ["answer_request", "prepare_process"]

_PACKAGES = ("mxnet",)


def prepare_process() -> None:
    """Load what is there; whether it is there is said when a request comes."""
    # No threads of MXNet's, so that a fork has all that it needs.
    os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"
    with _without_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load_packages(_PACKAGES)
        if _PACKAGES[0] in sys.modules:
            sys.modules[_PACKAGES[0]].nd.waitall()  # the engine starts here, and not in every fork


@contextlib.contextmanager
def _without_errors() -> Iterator[None]:
    """MXNet tells on stderr which engine it starts."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def answer_request(request: Request) -> Answer:
    return answer_with(_capture, _special, request)


def _capture(request: Request) -> Trace:
    prepare_process()
    require_packages("mxnet", _PACKAGES)
    from ._capture import capture_here

    return capture_here(request.workload)


def _special(error: BaseException, workload: Workload) -> OomcastError | None:
    """What only MXNet raises."""
    if isinstance(error, OomcastError):
        return error
    import mxnet as mx

    if isinstance(error, mx.base.MXNetError) and not users_lines(error.__traceback__):
        return BadInput(f"MXNet rejects {workload.job.reference}: {reason(error)}")
    return None
