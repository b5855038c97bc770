"""A workload's Trace, captured here in a process of its own: what goes wrong there becomes a sentence."""

from __future__ import annotations

import dataclasses
import importlib
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

__all__ = ["capture_here", "interrupt", "trace_of"]

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
_servers: dict[tuple[str, str, bool, tuple[str, ...], str | None, int], CaptureServer | SpawningServer] = {}
"""By framework, the Python that has it (a campaign compares several), whether its jobs are forks, the libraries that it
loads before it forks (what one job needed must not show in the answer for the next), what Keras is told to compute with
when the process starts, and the lane."""


def interrupt(lane: int) -> None:
    """From another thread: end what is captured in a lane; whoever waits for it is told that there is no answer."""
    for (*_, number), server in list(_servers.items()):
        if number == lane:
            server.interrupt()


def capture_here(spec: Spec, lane: int = 0) -> Trace:
    """Run the job on the virtual GPU of its place, in another process, and return its record.

    Each lane has processes of its own, so that several threads capture at once.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is. For a job that is an object
    this process forks; where jobs are no forks, the object is sent to a process that starts anew.
    The framework is the one that the workload names, else the one of what the job's `model()` returns.
    """
    workload = spec.workload
    framework = known_framework(guess_framework(workload), tuple(ROOMS))
    try:
        return _ask(framework, spec, lane)
    except CompiledCodeFailed as failed:
        # Nothing that the script wrote is left, so it can be run once more.
        assert spec.script is not None
        reason = f"compiled code cannot be followed here ({failed})"
        eager = dataclasses.replace(spec, script=dataclasses.replace(spec.script, eager_because=reason))
        return _ask(framework, eager, lane)
    except OtherFramework as other:
        actual = known_framework(str(other), tuple(ROOMS))
        if workload.framework is not None:
            raise BadInput(
                f"model() in {workload.job.name} returned a model of {actual}, not of {framework}; "
                f"leave --framework out, or say {actual}."
            ) from None
        return _ask(actual, spec, lane)


def _ask(framework: str, spec: Spec, lane: int) -> Trace:
    workload, time_limit = spec.workload, spec.effort.time_limit
    check_temporary_folder()  # before any library is loaded that would leave a folder of its own
    if framework in ("mxnet", "onnx") and spec.place.machines.world_size > 1:
        raise BadInput(
            f"several GPUs are offered for PyTorch, TensorFlow and JAX jobs, not for {framework}; name one GPU."
        )
    if framework != "torch" and workload.blocks is not None:
        raise BadInput(f"--blocks is offered for PyTorch jobs, not for {framework}; leave it out.")
    # Which software is installed here decides what is assumed of the target; the other process may have another.
    request = Request.of(spec.with_place(environment=stack_of(spec.place.environment, framework).environment))
    try:
        if workload.job.kind is JobKind.OBJECT:
            answer = _from_object(framework, request)
        else:
            server = _server(framework, interpreter_of(framework), workload.libraries, lane)
            answer = server.ask(request, limits_of(spec))
    except TimeLimit:
        raise TookTooLong(
            f"{workload.job.reference} did not finish within {time_limit:g} s; "
            "if it only needs longer, raise the limit with --time-limit."
        ) from None
    except ProcessEnded as ended:
        raise _how_it_ended(ended, framework, spec) from None
    return trace_of(answer)


def trace_of(answer: Answer) -> Trace:
    """What an answer brought; raises the error that it tells."""
    if answer.error is None:
        return trace_from_bytes(answer.payload)
    kind = _ERRORS.get(answer.error, BadInput if answer.exit_code == 2 else CaptureFailed)
    if issubclass(kind, (JobFailed, CaptureFailed)):
        raise kind(answer.message, answer.traceback)
    raise kind(answer.message)


def _server(
    framework: str, python: str, libraries: tuple[str, ...] = (), lane: int = 0
) -> CaptureServer | SpawningServer:
    key = framework, python, jobs_are_forks(), libraries, os.environ.get("KERAS_BACKEND"), lane
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
    """Libraries that get no memory abort, or end with code 1, and few of them leave a word in the job's own log.

    A job whose process has too little left to say why its answer could not be written says nothing, either.
    """
    if resource is None or resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return False
    wants_memory = not last or "emory" in last or "can't start new thread" in last
    return wants_memory and (ended.exit_code in (1, NO_ANSWER_WRITTEN) or ended.signal == signal.SIGABRT)
