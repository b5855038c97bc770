"""Settings of torch that a job makes itself and that change its memory: what is not followed is told."""

from __future__ import annotations

import os

import torch

__all__ = ["JobSettings"]

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class JobSettings:
    """As they stood when the virtual GPU was put in place; `changed` says what the job did since."""

    def __init__(self) -> None:
        self._benchmark = torch.backends.cudnn.benchmark
        self._allocator = _allocator_settings()

    def changed(self) -> tuple[str, ...]:
        told = []
        if torch.backends.cudnn.benchmark and not self._benchmark:
            told.append("the job sets cudnn.benchmark: its timing runs are counted with --cudnn-benchmark")
        allocator = _allocator_settings()
        if allocator and allocator != self._allocator:
            told.append(f"the job sets PYTORCH_CUDA_ALLOC_CONF: it is followed with --alloc-conf {allocator}")
        return tuple(told)


def _allocator_settings() -> str:
    return next((os.environ[name] for name in _ALLOCATOR if os.environ.get(name)), "")
