"""Settings of torch and its libraries that a job makes for its process, and that change its memory."""

from __future__ import annotations

import dataclasses
import os

import torch

from ...devices import NCCL_VARIABLES
from ...trace import ProcessSettings

__all__ = ["JobSettings", "sentences_about"]

_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class JobSettings:
    """As they stood when the virtual GPU was put in place, and as the job has changed them since."""

    def __init__(self) -> None:
        self._before = _in_force()
        self._allocator: str | None = None
        self.memory_fraction = 1.0

    def set_allocator(self, text: str) -> None:
        """By torch's own call, which replaces what the environment said."""
        self._allocator = text

    def in_force(self) -> ProcessSettings:
        """All that holds in this process, whoever has set it."""
        now = _in_force()
        return dataclasses.replace(now, alloc_conf=self._allocator_text(now.alloc_conf))

    def changed(self) -> ProcessSettings:
        """What the job itself has set. A variable of the shell that oomcast was called from is not the job's."""
        now, before = _in_force(), self._before
        variable = now.alloc_conf if now.alloc_conf != before.alloc_conf else None
        return ProcessSettings(
            cudnn_benchmark=now.cudnn_benchmark and not before.cudnn_benchmark,
            cudnn_deterministic=now.cudnn_deterministic and not before.cudnn_deterministic,
            cudnn_tf32=now.cudnn_tf32 or not before.cudnn_tf32,
            alloc_conf=self._allocator_text(variable),
            cublas_workspace=now.cublas_workspace if now.cublas_workspace != before.cublas_workspace else None,
            nccl=tuple(setting for setting in now.nccl if setting not in before.nccl),
        )

    def inherited(self) -> ProcessSettings:
        """What came with the process and still holds."""
        now, before = _in_force(), self._before
        return ProcessSettings(
            alloc_conf=before.alloc_conf if now.alloc_conf == before.alloc_conf and not self._allocator else None,
            cublas_workspace=before.cublas_workspace if now.cublas_workspace == before.cublas_workspace else None,
            nccl=tuple(setting for setting in now.nccl if setting in before.nccl),
        )

    def _allocator_text(self, variable: str | None) -> str | None:
        share = "" if self.memory_fraction == 1.0 else f"per_process_memory_fraction:{self.memory_fraction}"
        return ",".join(filter(None, (self._allocator or variable, share))) or None


def sentences_about(settings: ProcessSettings) -> tuple[str, ...]:
    told = []
    if settings.cudnn_benchmark:
        told.append("the job sets torch.backends.cudnn.benchmark: its trial runs are counted")
    if not settings.cudnn_tf32:
        told.append("the job keeps convolutions from computing in TF32, which is followed")
    if settings.alloc_conf:
        told.append(
            f"the job sets the allocator to {settings.alloc_conf!r}, which is followed where --alloc-conf says nothing"
        )
    if settings.cublas_workspace:
        told.append(f"the job sets CUBLAS_WORKSPACE_CONFIG to {settings.cublas_workspace!r}, which is followed")
    if settings.nccl:
        told.append(f"the job sets {', '.join(f'{name}={value}' for name, value in settings.nccl)}, which is followed")
    return tuple(told)


def _in_force() -> ProcessSettings:
    return ProcessSettings(
        cudnn_benchmark=bool(torch.backends.cudnn.benchmark),
        # ATen/native/Convolution.cpp takes either for it.
        cudnn_deterministic=bool(torch.backends.cudnn.deterministic) or torch.are_deterministic_algorithms_enabled(),
        cudnn_tf32=_convolutions_may_take_tf32(),
        alloc_conf=next((os.environ[name] for name in _ALLOCATOR if os.environ.get(name)), None),
        cublas_workspace=os.environ.get("CUBLAS_WORKSPACE_CONFIG") or None,
        nccl=tuple((name, os.environ[name]) for name in NCCL_VARIABLES if os.environ.get(name)),
    )


def _convolutions_may_take_tf32() -> bool:
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:  # torch refuses the old question to who has used its newer names
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]
