"""A workload's Trace, captured in a process of its own: what goes wrong there becomes a sentence here."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import sys
import tempfile

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]

from ..children import jobs_are_forks
from ..devices import stack_of
from ..errors import BadInput, CaptureFailed, JobFailed, OomcastError, TookTooLong, UnreadableFile
from ..spec import JobKind, Spec
from ..trace import Trace, trace_from_bytes
from .explain import CompiledCodeFailed, beyond_memory_limit, no_memory_for
from .frameworks import OtherFramework, guess_framework, interpreter_of, known_framework, missing_framework
from .hooks import ROOMS, hooks_of
from .job_process import NO_ANSWER_WRITTEN
from .messages import Answer, ProcessEnded, Request, TimeLimit
from .processes import CaptureServer, run_forked
from .scratch import check_temporary_folder
from .spawned import SpawningServer
from .worker import answer_request, limits_of

__all__ = ["capture", "remember_captures"]

_ERRORS: dict[str, type[OomcastError]] = {
    kind.__name__: kind
    for kind in (
        BadInput,
        CaptureFailed,
        CompiledCodeFailed,
        JobFailed,
        OtherFramework,
        TookTooLong,
        UnreadableFile,
    )
}
_LIBRARIES = (JobKind.TIMM, JobKind.TORCHVISION, JobKind.HF)
"""Kinds of jobs whose library a server loads before it forks."""
_servers: dict[tuple[str, str, bool, JobKind | None], CaptureServer | SpawningServer] = {}
"""By framework, the Python that has it (a campaign compares several), whether its jobs are forks, and the library that
it loads: what one job needed must not show in the answer for the next."""


def capture(spec: Spec) -> Trace:
    """Run the job on the virtual GPU of its place, in another process, and return its record.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is. For a job that is an object
    this process forks; where jobs are no forks, the object is sent to a process that starts anew.
    The framework is the one that the workload names, else the one of what the job's `model()` returns.
    """
    workload = spec.workload
    if workload.job.kind is JobKind.TEMPLATE:
        raise BadInput(
            f"{workload.job.reference} is a network of a campaign: add --estimator tbem with its --campaign, or "
            "--estimator equation with its --equation."
        )
    if workload.job.kind is JobKind.SCRIPT and os.name != "posix":
        raise BadInput("scripts can be run on Linux and macOS only; give a job file with model() and batch() instead.")
    if _remembered.most == 0 or workload.job.kind in (JobKind.OBJECT, JobKind.SCRIPT):
        return _capture(spec)
    key = json.dumps([workload.as_dict(), spec.place.as_dict()], sort_keys=True)
    trace = _remembered.traces.pop(key, None) or _capture(spec)
    _remembered.traces[key] = trace  # the newest are at the end
    while len(_remembered.traces) > _remembered.most:
        del _remembered.traces[next(iter(_remembered.traces))]
    return trace


def remember_captures(most: int) -> None:
    """From now on this process keeps its last Traces: who asks for the same job and place gets the same Trace.

    Only for a process that knows that the files its jobs name do not change, or that calls this again where they do:
    what was kept before is forgotten.
    """
    _remembered.most = most
    _remembered.traces.clear()


@dataclasses.dataclass
class _Remembered:
    most: int = 0
    traces: dict[str, Trace] = dataclasses.field(default_factory=dict)


_remembered = _Remembered()


def _capture(spec: Spec) -> Trace:
    workload = spec.workload
    framework = known_framework(guess_framework(workload), tuple(ROOMS))
    try:
        return _ask(framework, spec)
    except CompiledCodeFailed as failed:
        # Nothing that the script wrote is left, so it can be run once more.
        assert spec.script is not None
        reason = f"compiled code cannot be followed here ({failed})"
        return _ask(framework, dataclasses.replace(spec, script=dataclasses.replace(spec.script, eager_because=reason)))
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
    if framework not in ("torch", "jax") and spec.place.machines.world_size > 1:
        raise BadInput(f"several GPUs are offered for PyTorch and JAX jobs, not for {framework}; name one GPU.")
    if framework != "torch" and workload.blocks is not None:
        raise BadInput(f"--blocks is offered for PyTorch jobs, not for {framework}; leave it out.")
    # Which software is installed here decides what is assumed of the target; the other process may have another.
    request = Request.of(spec.with_place(environment=stack_of(spec.place.environment, framework).environment))
    try:
        if workload.job.kind is JobKind.OBJECT:
            answer = _from_object(framework, request)
        else:
            library = workload.job.kind if workload.job.kind in _LIBRARIES else None
            answer = _server(framework, interpreter_of(framework), library).ask(request, limits_of(spec))
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


def _server(framework: str, python: str, library: JobKind | None = None) -> CaptureServer | SpawningServer:
    key = framework, python, jobs_are_forks(), library
    if key not in _servers:
        _servers[key] = (CaptureServer if jobs_are_forks() else SpawningServer)(framework, python)
    return _servers[key]


def _from_object(framework: str, request: Request) -> Answer:
    hooks = hooks_of(framework)
    try:
        for module in hooks.loads_early:
            importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing_framework(framework, error.name or framework) from None
    limits = limits_of(request.spec)
    if jobs_are_forks():
        return run_forked(lambda: answer_request(hooks, request), limits)
    return _server(framework, sys.executable).ask(request, limits)


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
