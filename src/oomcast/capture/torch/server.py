"""`python -m oomcast.capture.torch.server`: torch loaded once, a fork for every request that comes on stdin."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import BinaryIO

import torch
from torch import nn

from oomcast.workload import Workload

from .._messages import Answer, Request
from .jobs._vision import import_library
from .worker import answer_request, capture_here

__all__ = ["main", "warm_up"]

_LOG_BYTES = 8192
_LIBRARIES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}


def main() -> None:
    """Answer requests until stdin closes."""
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anybody prints must not mix with the answers
    warm_up()
    while (request := Request.read(sys.stdin.buffer)) is not None:
        # Loaded here and not in the fork, a library is there for the next request too.
        with contextlib.suppress(Exception):
            library = _LIBRARIES.get(request.workload.job.kind.value)
            if library is not None:
                import_library(library)
        if hasattr(os, "fork"):
            _answer_by_fork(request, answers)
        else:
            answer_request(request).write(answers)


def warm_up() -> None:
    """Capture something small here: what torch loads and prepares at first use, every fork then has already."""
    workload = Workload.create(_SmallJob, batch_size=2, steps=1, precision="amp-fp16")
    with contextlib.suppress(Exception):
        capture_here(workload, "a100-40gb")


class _SmallJob:
    """The operators that most models have."""

    @staticmethod
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )

    @staticmethod
    def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch_size, 3, 8, 8), torch.zeros(batch_size, dtype=torch.long)


def _answer_by_fork(request: Request, answers: BinaryIO) -> None:
    """The child writes its own answer; if it dies before, the parent says how."""
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as result:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                os.close(0)
                answer_request(request).write(result)
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


if __name__ == "__main__":
    main()
