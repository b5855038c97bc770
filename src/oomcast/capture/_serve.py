"""The loop of a capture process: a fork for every request that comes on stdin, so that none harms the next."""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from typing import BinaryIO

from ._messages import Answer, Request

__all__ = ["serve", "serve_worker"]

_LOG_BYTES = 8192


def serve(
    answer: Callable[[Request], Answer],
    prepare: Callable[[], None],
    load: Callable[[Request], None] | None = None,
) -> None:
    """Answer requests until stdin closes; `prepare` loads what every fork then has already.

    `load` is called before the fork of each request: what it loads is there for the next one too.
    """
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not mix with the answers
    prepare()
    while (request := Request.read(sys.stdin.buffer)) is not None:
        if load is not None:
            load(request)
        if hasattr(os, "fork"):
            _by_fork(request, answer, answers)
        else:
            answer(request).write(answers)


def serve_worker(module: str) -> None:
    """Serve by a module that has `prepare_process` and `answer_request`.

    What `prepare_process` imports must not be used before the fork: a framework that has run something has threads,
    which a fork does not inherit.
    """

    def answer(request: Request) -> Answer:
        found: Answer = importlib.import_module(module).answer_request(request)
        return found

    serve(answer, lambda: importlib.import_module(module).prepare_process())


def _by_fork(request: Request, answer: Callable[[Request], Answer], answers: BinaryIO) -> None:
    """The child writes its own answer; if it dies before, the parent says how."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as result:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                os.close(0)
                answer(request).write(result)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status == 0:
            result.seek(0)
            while chunk := result.read(1 << 20):
                answers.write(chunk)
            answers.flush()
            return
        log.seek(max(0, os.fstat(log.fileno()).st_size - _LOG_BYTES))
        ended = (os.WTERMSIG(status), 0) if os.WIFSIGNALED(status) else (0, os.waitstatus_to_exitcode(status))
        Answer(ended=ended, log=log.read().decode(errors="replace")).write(answers)
