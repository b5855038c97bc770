"""The capture process: a framework loaded once, a fork for every request that comes on stdin, until stdin closes.

Started by `CaptureServer` with the name of the framework; the answers go to stdout as it was at the start.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import sys
from functools import partial
from typing import Any

from ..children import die_with_parent, live_on
from ..errors import OomcastError
from ..spec import Spec
from ..trace import Trace, trace_to_bytes
from .explain import explain
from .frameworks import require_packages
from .guarding import CallerGone, Limits, Waiter, run_guarded
from .hooks import Hooks, hooks_of
from .keeping_apart import what_was_written
from .messages import Answer, Request, write_all

__all__ = ["answer_request", "limits_of", "main"]

_RECURSION_LIMIT = 20_000
_TO_ANSWER = 30.0
"""Seconds."""
_LOOK_AGAIN = 2.0
"""Seconds after which an idle process looks whether its caller is still there: stdin may have been handed on."""


def main() -> None:
    """Never returns: what a framework does at the end of a process takes time and serves nobody here."""
    hooks, waiter = hooks_of(sys.argv[1]), Waiter(os.getppid(), 0)
    answers = os.dup(1)
    os.dup2(2, 1)  # what anybody prints must not mix with the answers
    # The caller's thread waits while we load. Later it may have ended, and another asks: so not for good.
    die_with_parent()
    if (
        hasattr(select, "poll") and waiter.is_gone()
    ):  # it was quicker to end than we to start: nothing would tell us any more
        os._exit(0)
    with contextlib.suppress(Exception):  # it comes again, and is explained, when a job needs it
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
    if plain["folder"] is not None:
        with contextlib.suppress(OSError):
            os.chdir(plain["folder"])
    try:
        request = Request.from_plain(plain)
    except OomcastError as error:
        return _problem(error)
    with contextlib.suppress(Exception):
        hooks.load_library(request.spec)
    work = partial(answer_request, hooks, request)
    if not hasattr(os, "fork"):
        return work()
    return run_guarded(work, request.id, limits_of(request.spec), waiter, (answers,))


def limits_of(spec: Spec) -> Limits:
    """A script keeps its time limit itself, and then answers with what was seen: that takes a little longer."""
    effort, longer = spec.effort, 0.0 if spec.script is None else _TO_ANSWER
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
        return _problem(_explained(hooks, error, request.spec))


def _captured(hooks: Hooks, request: Request) -> Trace:
    hooks.load()
    require_packages(hooks.framework, hooks.packages)
    trace = hooks.capture(request.spec)
    written = what_was_written()
    return trace if written is None else dataclasses.replace(trace, assumptions=(*trace.assumptions, written))


def _problem(error: OomcastError) -> Answer:
    lines = getattr(error, "traceback", "")
    return Answer(error=type(error).__name__, message=str(error), traceback=lines, exit_code=error.exit_code)


def _explained(hooks: Hooks, error: BaseException, spec: Spec) -> OomcastError:
    special = None
    if not isinstance(error, OomcastError):
        with contextlib.suppress(ImportError):  # of a framework that does not load
            special = hooks.explain(error, spec)
    return special or explain(error, spec)


def _next_line(waiter: Waiter) -> bytes | None:
    """A request; None when there will be none."""
    line = bytearray()
    poller = select.poll() if hasattr(select, "poll") else None
    if poller is not None:
        poller.register(waiter.lifeline, select.POLLIN)
    while not line.endswith(b"\n"):
        while poller is not None and not poller.poll(int(_LOOK_AGAIN * 1000)):
            if waiter.is_gone():
                return None
        chunk = os.read(waiter.lifeline, 1 << 16)
        if not chunk:
            return None
        line += chunk
    return bytes(line)


if __name__ == "__main__":
    main()
