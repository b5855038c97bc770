"""What goes wrong in a capture process, as something to tell the user, whatever the framework."""

from __future__ import annotations

import traceback as _traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from ..errors import CaptureFailed, JobFailed, OomcastError
from ..trace import Trace, trace_to_bytes
from ..workload import Workload
from ._messages import Answer, Request

__all__ = ["answer_with", "explain", "first_sentence", "users_lines"]

_OURS = str(Path(__file__).parents[1])

Special = Callable[[BaseException, Workload], OomcastError | None]
"""A framework's own reading of an error; None where it has none."""


def answer_with(capture: Callable[[Request], Trace], special: Special, request: Request) -> Answer:
    """Capture, or say what went wrong and whose fault it is."""
    try:
        return Answer(payload=trace_to_bytes(capture(request)))
    except BaseException as error:
        told = special(error, request.workload) or explain(error, request.workload)
        trace = getattr(told, "traceback", "")
        return Answer(error=type(told).__name__, message=str(told), traceback=trace, exit_code=told.exit_code)


def explain(error: BaseException, workload: Workload) -> OomcastError:
    if isinstance(error, OomcastError):
        return error
    reference, lines, text = workload.job.reference, users_lines(error.__traceback__), first_sentence(error)
    if isinstance(error, RecursionError):
        return CaptureFailed(f"{reference} is nested too deep to be captured (Python's recursion limit).", lines)
    if isinstance(error, MemoryError):
        return CaptureFailed(f"this machine has not enough memory to capture {reference}.")
    if isinstance(error, SyntaxError) and error.filename:
        return JobFailed(f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}.")
    if isinstance(error, SystemExit):
        return JobFailed(f"{reference} ended its process (sys.exit) instead of returning.", lines)
    kind = type(error).__name__
    if lines:
        return JobFailed(f"{reference} raised {kind}: {text}", lines)
    frames = _traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].filename.startswith(_OURS):
        everything = "".join(_traceback.format_exception(error))
        return CaptureFailed(f"oomcast could not capture {reference}: {kind}: {text}", everything)
    return JobFailed(f"{reference} rejects this configuration: {kind}: {text}", lines)


def first_sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__


def users_lines(trace: TracebackType | None) -> str:
    """The traceback without ours, Python's and installed packages' frames."""
    not_the_users = (_OURS, str(Path(_traceback.__file__).parent), "<")
    frames = [
        frame
        for frame in _traceback.extract_tb(trace)
        if not frame.filename.startswith(not_the_users) and "site-packages" not in frame.filename
    ]
    return "".join(_traceback.format_list(frames))
