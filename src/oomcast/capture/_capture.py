"""A workload's Trace, captured in a process of its own: what goes wrong there becomes a sentence here."""

from __future__ import annotations

import importlib
import os
import signal

from ..devices import Gpu
from ..errors import BadInput, CaptureFailed, JobFailed, OomcastError, TookTooLong, UnreadableFile
from ..trace import Trace, trace_from_bytes
from ..workload import JobKind, Workload
from ._frameworks import OtherFramework, guess_framework, interpreter_of, known_framework, missing_framework
from ._messages import Answer, Request
from ._process import CaptureServer, ProcessEnded, TimeLimit, run_forked

__all__ = ["DEFAULT_TIME_LIMIT", "capture"]

DEFAULT_TIME_LIMIT = 300.0

_ERRORS: dict[str, type[OomcastError]] = {
    kind.__name__: kind for kind in (BadInput, CaptureFailed, JobFailed, OtherFramework, UnreadableFile)
}
_WORKERS = {name: f"oomcast.capture.{name}" for name in ("torch", "tensorflow", "jax", "mxnet", "onnx")}
"""Framework → the package whose `server` answers in a process of its own, and whose `worker` has `answer_request`."""
_servers: dict[str, CaptureServer] = {}


def capture(workload: Workload, gpu: Gpu, time_limit: float = DEFAULT_TIME_LIMIT) -> Trace:
    """Run the workload on a virtual GPU, in another process, and return its record.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is. A job that is an object
    cannot be sent to another program, so this process forks; where it cannot fork, the object runs here.
    The framework is the one that the workload names, else the one of what the job's `model()` returns.
    """
    request = Request(workload, gpu.name)
    framework = known_framework(guess_framework(workload), tuple(_WORKERS))
    try:
        return _ask(framework, request, time_limit)
    except OtherFramework as other:
        found = known_framework(str(other), tuple(_WORKERS))
        if workload.framework is not None:
            raise BadInput(
                f"model() in {workload.job.name} returned a model of {found}, not of {framework}; "
                f"leave --framework out, or say {found}."
            ) from None
        return _ask(found, request, time_limit)


def _ask(framework: str, request: Request, time_limit: float) -> Trace:
    workload = request.workload
    try:
        if workload.job.kind is JobKind.OBJECT:
            answer = _from_object(framework, request, time_limit)
        else:
            answer = _server(framework).ask(request, time_limit)
    except TimeLimit:
        raise TookTooLong(
            f"{workload.job.reference} did not finish within {time_limit:g} s; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    except ProcessEnded as ended:
        raise CaptureFailed(_how_it_ended(ended, framework)) from None
    if answer.error is None:
        return trace_from_bytes(answer.payload)
    kind = _ERRORS.get(answer.error, BadInput if answer.exit_code == 2 else CaptureFailed)
    if issubclass(kind, (JobFailed, CaptureFailed)):
        raise kind(answer.message, answer.traceback)
    raise kind(answer.message)


def _server(framework: str) -> CaptureServer:
    if framework not in _servers:
        _servers[framework] = CaptureServer(f"{_WORKERS[framework]}.server", interpreter_of(framework))
    return _servers[framework]


def _from_object(framework: str, request: Request, time_limit: float) -> Answer:
    try:
        answer_request = importlib.import_module(f"{_WORKERS[framework]}.worker").answer_request
    except ModuleNotFoundError as error:
        raise missing_framework(framework, error.name or framework) from None

    if not hasattr(os, "fork"):
        answer: Answer = answer_request(request)
        return answer
    return run_forked(lambda: answer_request(request), time_limit)


def _how_it_ended(ended: ProcessEnded, framework: str) -> str:
    if ended.signal == signal.SIGKILL:
        return "the capture was killed, most likely for want of memory on this machine."
    cause = f"signal {signal.Signals(ended.signal).name}" if ended.signal else f"exit code {ended.exit_code}"
    last = ended.last_words()
    return f"{framework} ended the capture process ({cause}){': ' + last if last else '.'}"
