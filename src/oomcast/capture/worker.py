"""The capture process: a framework loaded once, a fork for every request that comes on stdin, until stdin closes.

Started by `CaptureServer` with the name of the framework; the answers go to stdout as it was at the start. Started by
`SpawningServer` it is told `--one-request`: then it runs the one job itself, and ends.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pickle
import select
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from ..children import die_with_parent, live_on
from ..errors import CaptureFailed, JobFailed, OomcastError
from ..spec import COMPILING_MAY_TAKE, Spec
from ..trace import Trace, trace_to_bytes
from .collector import collector_rests, keep_for_good
from .explain import explain
from .frameworks import older_than_promised, require_packages
from .guarding import CallerGone, Waiter, run_guarded
from .hooks import Hooks, hooks_of
from .job_process import Desk, Limits, be_the_job, end_process
from .keeping_apart import what_was_written
from .messages import Answer, Order, Request, write_all

__all__ = ["answer_request", "limits_of", "main"]

_RECURSION_LIMIT = 20_000
_TO_ANSWER = 30.0
"""Seconds."""
_LOOK_AGAIN = 2.0
"""Seconds after which an idle process looks whether its caller is still there: stdin may have been handed on."""


def main() -> None:
    """Never returns: what a framework does at the end of a process takes time and serves nobody here."""
    hooks = hooks_of(sys.argv[1])
    if "--one-request" in sys.argv:
        _answer_one(hooks)
    waiter = Waiter(os.getppid(), 0)
    answers = os.dup(1)
    os.dup2(2, 1)  # what anybody prints must not mix with the answers
    # The caller's thread waits while we load. Later it may have ended, and another asks: so not for good.
    die_with_parent()
    if waiter.is_gone():  # it was quicker to end than we to start: nothing would tell us any more
        os._exit(0)
    with collector_rests(), contextlib.suppress(Exception):  # it comes again, and is explained, when a job needs it
        hooks.load()
        hooks.warm_up()
    live_on()
    try:
        while (line := _next_line(waiter)) is not None:
            plain = json.loads(line)
            write_all(answers, _answered(hooks, plain, waiter, answers).to(plain["id"]).to_bytes())
    except CallerGone:
        pass
    except MemoryError:  # the caller tells it; a traceback of ours would only come before its sentence
        os._exit(1)
    os._exit(0)


def _answered(hooks: Hooks, plain: dict[str, Any], waiter: Waiter, answers: int) -> Answer:
    _enter(plain["folder"])
    try:
        request = Request.from_plain(plain)
    except OomcastError as error:
        return Answer.of_error(error)
    with collector_rests(), contextlib.suppress(Exception):
        hooks.load_library(request.spec)
    keep_for_good()
    work = partial(answer_request, hooks, request)
    return run_guarded(work, request.id, limits_of(request.spec), waiter, (answers,))


def _answer_one(hooks: Hooks) -> NoReturn:
    """In a process that started anew: be the job of the one request that comes."""
    with collector_rests(), contextlib.suppress(Exception):
        hooks.load()
    keep_for_good()
    lifeline = os.dup(0)
    line = _read_line(lifeline)
    if line is None:
        os._exit(0)
    order = Order(**json.loads(line))
    log = os.open(order.log, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
    # The job must not have it: it could read the caller's end away, and what it starts would keep it.
    os.set_inheritable(lifeline, False)

    def settle() -> None:
        threading.Thread(target=_end_with_caller, args=(lifeline,), daemon=True).start()
        with open(order.begun, "xb"):
            pass

    desk = Desk(**{**order.desk, "limits": Limits(**order.desk["limits"])})
    be_the_job(partial(_one_answer, hooks, order), desk, log, settle)


def _one_answer(hooks: Hooks, order: Order) -> Answer:
    _enter(order.folder)
    try:
        if order.pickled is None:
            request = Request.from_plain(order.request or {})
        else:
            sys.path += [folder for folder in order.path or () if folder not in sys.path]
            request = pickle.loads(Path(order.pickled).read_bytes())  # our caller's own, from its own folder
    except OomcastError as error:
        return Answer.of_error(error)
    return answer_request(hooks, request)


def _enter(folder: str | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _end_with_caller(lifeline: int) -> None:
    """Nothing more comes there: when reading ends, the caller has closed its end, or is gone."""
    while os.read(lifeline, 1 << 16):
        pass
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    end_process(1)


def limits_of(spec: Spec) -> Limits:
    """A script keeps its time limit itself, and then answers with what was seen: that takes a little longer."""
    effort = spec.effort
    longer = 0.0 if spec.script is None else _TO_ANSWER + COMPILING_MAY_TAKE * effort.time_limit
    return Limits(effort.time_limit + longer, effort.memory_limit, effort.write_files)


def answer_request(hooks: Hooks, request: Request) -> Answer:
    """Capture, or say what went wrong and whose fault it is."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _RECURSION_LIMIT))
    if request.variables is not None:
        temporary = os.environ.get("TMPDIR", "")
        os.environ.clear()
        os.environ.update(request.variables)
        os.environ.update({"TMPDIR": temporary} if temporary else {})  # the job's own
    try:
        return Answer(payload=trace_to_bytes(_captured(hooks, request)))
    except BaseException as error:
        return Answer.of_error(_explained(hooks, error, request.spec))


def _captured(hooks: Hooks, request: Request) -> Trace:
    hooks.load()
    require_packages(hooks.framework, hooks.packages)
    trace = hooks.capture(request.spec)
    told = [
        sentence for sentence in (what_was_written(), older_than_promised(hooks.framework, hooks.least)) if sentence
    ]
    return dataclasses.replace(trace, assumptions=(*trace.assumptions, *told)) if told else trace


def _explained(hooks: Hooks, error: BaseException, spec: Spec) -> OomcastError:
    special = None
    if not isinstance(error, OomcastError):
        with contextlib.suppress(ImportError):  # of a framework that does not load
            special = hooks.explain(error, spec)
    explained = special or explain(error, spec)
    outdated = older_than_promised(hooks.framework, hooks.least)
    if outdated is None or not isinstance(explained, (CaptureFailed, JobFailed)):
        return explained
    return type(explained)(f"{str(explained).rstrip('.')}; {outdated}, which may be why.", explained.traceback)


def _next_line(waiter: Waiter) -> bytes | None:
    """A request; None when there will be none."""
    poller = select.poll()
    poller.register(waiter.lifeline, select.POLLIN)

    def come() -> bool:
        while not poller.poll(int(_LOOK_AGAIN * 1000)):
            if waiter.is_gone():
                return False
        return True

    return _read_line(waiter.lifeline, come)


def _read_line(descriptor: int, come: Callable[[], bool] = lambda: True) -> bytes | None:
    """A whole line; None when none will come. `come` waits for something to read."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = os.read(descriptor, 1 << 16) if come() else b""
        if not chunk:
            return None
        line += chunk
    return bytes(line)


if __name__ == "__main__":
    main()
