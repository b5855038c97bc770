"""In the capture process: answer one request, turning whatever goes wrong into something to tell the user."""

from __future__ import annotations

import sys
import traceback as _traceback
import warnings
from pathlib import Path
from types import TracebackType

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from oomcast.devices import find_gpu
from oomcast.errors import CaptureFailed, JobFailed, OomcastError
from oomcast.trace import Trace, trace_to_bytes
from oomcast.workload import JobKind, Workload

from .._messages import Answer, Request
from ._errors import RaisedAsOnGpu
from ._training import run_training
from ._virtual_gpu import virtual_gpu
from .jobs import load_job

__all__ = ["answer_request", "capture_here"]

_RECURSION_LIMIT = 20_000
_NOT_THE_USERS = (
    str(Path(torch.__file__).parent),
    str(Path(__file__).parents[2]),
    str(Path(_traceback.__file__).parent),
)


def answer_request(request: Request) -> Answer:
    """Capture, or say what went wrong and whose fault it is."""
    torch.set_num_threads(1)
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    try:
        return Answer(payload=trace_to_bytes(capture_here(request.workload, request.gpu)))
    except BaseException as error:
        told = _explain(error, request.workload)
        trace = getattr(told, "traceback", "")
        return Answer(error=type(told).__name__, message=str(told), traceback=trace, exit_code=told.exit_code)


def capture_here(workload: Workload, gpu_name: str) -> Trace:
    """The Trace of a workload, captured in this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with virtual_gpu(find_gpu(gpu_name)) as virtual:
            run_training(virtual, load_job(workload), workload)
            return virtual.trace(workload.as_dict())


def _explain(error: BaseException, workload: Workload) -> OomcastError:
    if isinstance(error, OomcastError):
        return error
    users_lines = _users_lines(error.__traceback__)
    text = _first_sentence(error)
    reference = workload.job.reference
    if isinstance(error, (UnsupportedOperatorException, DataDependentOutputException, DynamicOutputShapeException)):
        operator = getattr(error, "func", None) or text
        return CaptureFailed(f"{reference} uses the operator {operator}, which torch cannot run on fake tensors.")
    if isinstance(error, NotImplementedError) and ("fake" in str(error) or "meta" in str(error).lower()):
        return CaptureFailed(f"{reference} uses an operator that torch cannot run on fake tensors: {text}", users_lines)
    if isinstance(error, RecursionError):
        return CaptureFailed(f"{reference} is nested too deep to be captured (Python's recursion limit).", users_lines)
    if isinstance(error, MemoryError):
        return CaptureFailed(f"this machine has not enough memory to capture {reference}.")
    if isinstance(error, SyntaxError) and error.filename:
        return JobFailed(f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}.")
    if isinstance(error, SystemExit):
        return JobFailed(f"{reference} ended its process (sys.exit) instead of returning.", users_lines)
    is_ours = _raised_by_us(error.__traceback__) and not isinstance(error, RaisedAsOnGpu)
    kind = type(error).__bases__[-1].__name__ if isinstance(error, RaisedAsOnGpu) else type(error).__name__
    if workload.job.kind in (JobKind.FILE, JobKind.OBJECT) and users_lines:
        return JobFailed(f"{reference} raised {kind}: {text}", users_lines)
    if is_ours:
        return CaptureFailed(f"oomcast could not capture {reference}: {kind}: {text}", _all_lines(error))
    return JobFailed(f"{reference} rejects this configuration: {kind}: {text}", users_lines)


def _first_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def _users_lines(trace: TracebackType | None) -> str:
    """The traceback without torch's, ours and installed packages' frames."""
    frames = [
        frame
        for frame in _traceback.extract_tb(trace)
        if not frame.filename.startswith((*_NOT_THE_USERS, "<")) and "site-packages" not in frame.filename
    ]
    return "".join(_traceback.format_list(frames))


def _raised_by_us(trace: TracebackType | None) -> bool:
    frames = _traceback.extract_tb(trace)
    return bool(frames) and frames[-1].filename.startswith(_NOT_THE_USERS[1]) and "/zoo/" not in frames[-1].filename


def _all_lines(error: BaseException) -> str:
    return "".join(_traceback.format_exception(error))
