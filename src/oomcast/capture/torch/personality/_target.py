"""What the overrides must know of the GPU the job is meant for, and how its tensors are told from the host's."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Target", "current_target", "entered_targets", "on_virtual_gpu"]


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU and the libraries whose choices are followed; the machine that captures never decides."""

    compute_capability: tuple[int, int]
    cudnn_version: int
    """As `torch.backends.cudnn.version()` gives it: 91002 is 9.10.2."""
    cuda_version: tuple[int, int]


entered_targets: list[Target] = []
"""The targets of the personalities in place, the innermost last."""


def current_target() -> Target:
    """The target whose choices the overrides follow now."""
    return entered_targets[-1]


def on_virtual_gpu(tensor: torch.Tensor) -> bool:
    """Whether a tensor lives on the virtual GPU: its device is `cpu` with an index, the host's has none."""
    device = tensor.device
    return device.type == "cpu" and device.index is not None
