"""A workload's Trace, captured in a process of its own: what goes wrong there becomes a sentence here."""

from __future__ import annotations

import importlib
import os
import signal
import tempfile

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

from ..devices import stack_of
from ..errors import BadInput, CaptureFailed, JobFailed, OomcastError, TookTooLong, UnreadableFile
from ..spec import JobKind, Spec
from ..trace import Trace, trace_from_bytes
from .explain import beyond_memory_limit, no_memory_for
from .frameworks import OtherFramework, guess_framework, interpreter_of, known_framework, missing_framework
from .guarding import NO_ANSWER_WRITTEN
from .hooks import ROOMS, hooks_of
from .messages import Answer, Request
from .processes import CaptureServer, ProcessEnded, TimeLimit, run_forked
from .scratch import check_temporary_folder
from .worker import answer_request, limits_of

__all__ = ["capture"]

_ERRORS: dict[str, type[OomcastError]] = {
    kind.__name__: kind for kind in (BadInput, CaptureFailed, JobFailed, OtherFramework, TookTooLong, UnreadableFile)
}
_servers: dict[str, CaptureServer] = {}


def capture(spec: Spec) -> Trace:
    """Run the job on the virtual GPU of its place, in another process, and return its record.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is. A job that is an object
    cannot be sent to another program, so this process forks; where it cannot fork, the object runs here.
    The framework is the one that the workload names, else the one of what the job's `model()` returns.
    """
    workload = spec.workload
    if workload.job.kind is JobKind.TEMPLATE:
        raise BadInput(
            f"{workload.job.reference} is a network of a campaign: add --estimator tbem with its --campaign, or "
            "--estimator equation with its --equation."
        )
    if workload.job.kind is JobKind.SCRIPT and not hasattr(os, "fork"):
        raise BadInput("scripts can be run on Linux and macOS only; give a job file with model() and batch() instead.")
    framework = known_framework(guess_framework(workload), tuple(ROOMS))
    try:
        return _ask(framework, spec)
    except OtherFramework as other:
        actual = known_framework(str(other), tuple(ROOMS))
        if workload.framework is not None:
            raise BadInput(
                f"model() in {workload.job.name} returned a model of {actual}, not of {framework}; "
                f"leave --framework out, or say {actual}."
            ) from None
        return _ask(actual, spec)


def _ask(framework: str, spec: Spec) -> Trace:
    workload, time_limit = spec.workload, spec.effort.time_limit
    check_temporary_folder()  # before any library is loaded that would leave a folder of its own
    if framework != "torch" and spec.place.machines.world_size > 1:
        raise BadInput(f"several GPUs are offered for PyTorch jobs, not for {framework}; name one GPU.")
    # Which software is installed here decides what is assumed of the target; the other process may have another.
    request = Request.of(spec.with_place(environment=stack_of(spec.place.environment, framework).environment))
    try:
        if workload.job.kind is JobKind.OBJECT:
            answer = _from_object(framework, request)
        else:
            answer = _server(framework).ask(request, limits_of(spec))
    except TimeLimit:
        raise TookTooLong(
            f"{workload.job.reference} did not finish within {time_limit:g} s; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    except ProcessEnded as ended:
        raise _how_it_ended(ended, framework, spec) from None
    if answer.error is None:
        return trace_from_bytes(answer.payload)
    kind = _ERRORS.get(answer.error, BadInput if answer.exit_code == 2 else CaptureFailed)
    if issubclass(kind, (JobFailed, CaptureFailed)):
        raise kind(answer.message, answer.traceback)
    raise kind(answer.message)


def _server(framework: str) -> CaptureServer:
    if framework not in _servers:
        _servers[framework] = CaptureServer(framework, interpreter_of(framework))
    return _servers[framework]


def _from_object(framework: str, request: Request) -> Answer:
    hooks = hooks_of(framework)
    try:
        for module in hooks.loads_early:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_framework(framework, error.name or framework) from None
    if not hasattr(os, "fork"):
        return answer_request(hooks, request)
    return run_forked(lambda: answer_request(hooks, request), limits_of(request.spec))


def _how_it_ended(ended: ProcessEnded, framework: str, spec: Spec) -> OomcastError:
    reference, last = spec.workload.job.reference, ended.last_words()
    if spec.effort.memory_limit is not None and ("bad_alloc" in ended.log or "emory" in last):
        return beyond_memory_limit(spec)
    if ended.signal == signal.SIGKILL:
        return CaptureFailed("the capture was killed, most likely for want of memory on this machine.")
    if (ended.exit_code == NO_ANSWER_WRITTEN and "MemoryError" in last) or _died_of_a_limit(ended, last):
        return no_memory_for(reference)
    said = f": {last}" if last else "."
    if ended.signal:
        name = signal.Signals(ended.signal).name
        return CaptureFailed(f"{framework} ended the capture process (signal {name}){said}")
    if ended.exit_code == NO_ANSWER_WRITTEN:
        return CaptureFailed(f"the capture of {reference} could not be written to {tempfile.gettempdir()}{said}")
    return JobFailed(f"{reference} ended its process (exit code {ended.exit_code}) instead of returning{said}")


def _died_of_a_limit(ended: ProcessEnded, last: str) -> bool:
    """Libraries that get no memory abort, or end with code 1, and few of them leave a word in the job's own log."""
    if resource is None or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return False
    return (ended.exit_code == 1 or ended.signal == signal.SIGABRT) and (not last or "emory" in last)
