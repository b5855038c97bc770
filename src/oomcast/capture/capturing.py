"""`capture`: a Trace of a job, taken from where it was kept, or captured by the engine that the question names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator

from ..errors import BadInput
from ..spec import Effort, JobKind, Spec
from ..trace import Trace
from .engines import OF_THIS_PROCESS, engine_named
from .kept import InMemory, key_of, stored_in

__all__ = ["capture", "captures_at_once", "expecting", "remember_captures"]

_memory = InMemory()


def capture(spec: Spec) -> Trace:
    """Run the job on the virtual GPU of its place, in another process, and return its record.

    Raises BadInput or JobFailed where the job is at fault, CaptureFailed where oomcast is.
    """
    _check(spec)
    store = stored_in(spec.effort.store, spec)
    remembered = _memory.most > 0 and spec.workload.job.kind not in OF_THIS_PROCESS
    if store is None and not remembered:
        return engine_named(spec.effort.engine).capture(spec)
    key = key_of(spec)
    trace = _memory.get(key) if remembered else None
    if trace is None and store is not None:
        trace = store.get(key)
    if trace is None:
        trace = engine_named(spec.effort.engine).capture(spec)
        if store is not None:
            store.put(key, trace)
    if remembered:
        _memory.put(key, trace)
    return trace


@contextlib.contextmanager
def expecting(specs: Iterable[Spec]) -> Iterator[None]:
    """These will be asked for within, the first ones first: an engine that works on several at once begins with them.

    Only a hint: it changes when something is captured, never what. What was not asked for in the end is dropped.
    """
    specs = [spec for spec in specs if spec.workload.job.kind not in OF_THIS_PROCESS and not _is_stored(spec)]
    for spec in specs:
        _check(spec)
        engine_named(spec.effort.engine).expect(spec)
    try:
        yield
    finally:
        for spec in specs:
            engine_named(spec.effort.engine).drop([spec])


def _is_stored(spec: Spec) -> bool:
    store = stored_in(spec.effort.store, spec)
    return store is not None and key_of(spec) in store


def captures_at_once(effort: Effort) -> int:
    """How many captures the engine works on at a time."""
    return engine_named(effort.engine).at_once


def remember_captures(most: int) -> None:
    """From now on this process keeps its last Traces: who asks for the same job and place gets the same Trace.

    Only for a process that knows that the files its jobs name do not change, or that calls this again where they do:
    what was kept before is forgotten.
    """
    _memory.most = most
    _memory.clear()


def _check(spec: Spec) -> None:
    job = spec.workload.job
    if job.kind is JobKind.TEMPLATE:
        raise BadInput(
            f"{job.reference} is a network of a campaign: add --estimator tbem with its --campaign, or "
            "--estimator equation with its --equation."
        )
    if job.kind is JobKind.SCRIPT and os.name != "posix":
        raise BadInput("scripts can be run on Linux and macOS only; give a job file with model() and batch() instead.")
    if job.kind in OF_THIS_PROCESS and spec.effort.engine != "local":
        what = "a script" if job.kind is JobKind.SCRIPT else "an object"
        raise BadInput(f"{what} is captured on this machine; leave --engine out, or give a name or a job file.")
