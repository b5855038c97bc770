"""A workload's Trace, captured in a process of its own: what goes wrong there becomes a sentence here."""

from __future__ import annotations

import os
import signal

from ..devices import Gpu
from ..errors import BadInput, CaptureFailed, JobFailed, OomcastError, UnreadableFile
from ..trace import Trace, trace_from_bytes
from ..workload import JobKind, Workload
from ._messages import Answer, Request
from ._process import CaptureServer, ProcessEnded, TimeLimit, run_forked

__all__ = ["DEFAULT_TIME_LIMIT", "capture"]

DEFAULT_TIME_LIMIT = 300.0

_ERRORS: dict[str, type[OomcastError]] = {
    kind.__name__: kind for kind in (BadInput, CaptureFailed, JobFailed, UnreadableFile)
}
_server = CaptureServer()


def capture(workload: Workload, gpu: Gpu, time_limit: float = DEFAULT_TIME_LIMIT) -> Trace:
    """Run the workload on a virtual GPU, in another process, and return its record.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is. A job that is an object
    cannot be sent to another program, so this process forks; where it cannot fork, the object runs here.
    """
    request = Request(workload, gpu.name)
    try:
        if workload.job.kind is JobKind.OBJECT:
            answer = _from_object(request, time_limit)
        else:
            answer = _server.ask(request, time_limit)
    except TimeLimit:
        raise JobFailed(
            f"{workload.job.reference} did not finish within {time_limit:g} s; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    except ProcessEnded as ended:
        raise CaptureFailed(_how_it_ended(ended)) from None
    if answer.error is None:
        return trace_from_bytes(answer.payload)
    kind = _ERRORS.get(answer.error, BadInput if answer.exit_code == 2 else CaptureFailed)
    if issubclass(kind, (JobFailed, CaptureFailed)):
        raise kind(answer.message, answer.traceback)
    raise kind(answer.message)


def _from_object(request: Request, time_limit: float) -> Answer:
    from .torch.worker import answer_request

    if not hasattr(os, "fork"):
        return answer_request(request)
    return run_forked(lambda: answer_request(request), time_limit)


def _how_it_ended(ended: ProcessEnded) -> str:
    if ended.signal == signal.SIGKILL:
        return "the capture was killed, most likely for want of memory on this machine."
    cause = f"signal {signal.Signals(ended.signal).name}" if ended.signal else f"exit code {ended.exit_code}"
    last = ended.last_words()
    return f"torch ended the capture process ({cause}){': ' + last if last else '.'}"
