"""The one convention of the virtual GPU: fake tensors on `cpu:N` stand for `cuda:N`; the host is plain `cpu`."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["HOST", "is_virtual", "to_real_device", "to_shown_device"]

HOST = torch.device("cpu")
_STAND_INS = tuple(torch.device("cpu", index) for index in range(16))
_SHOWN = tuple(torch.device("cuda", index) for index in range(16))


def is_virtual(device: torch.device) -> bool:
    """Whether a device, as torch's C++ code sees it, stands for a GPU."""
    return device.index is not None and device.type == "cpu"


def to_real_device(device: Any) -> Any:
    """`cuda`, `"cuda:1"`, an index or a CUDA device → its stand-in; anything else unchanged."""
    if isinstance(device, torch.device):
        return _STAND_INS[device.index or 0] if device.type == "cuda" else device
    if isinstance(device, str):
        if device.startswith("cuda"):
            return _STAND_INS[torch.device(device).index or 0]
        return HOST if device.startswith("cpu") else device
    if isinstance(device, int) and not isinstance(device, bool):
        return _STAND_INS[device]
    return device


def to_shown_device(device: torch.device) -> torch.device:
    """What Python code is told: `cuda:N` for a stand-in."""
    return _SHOWN[device.index] if is_virtual(device) else device
