"""The one convention of the virtual GPU: fake tensors on `cpu:N` stand for `cuda:N`; the host is plain `cpu`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .errors import NoSuchGpu

__all__ = ["DEVICES", "HOST", "DeviceTable", "is_virtual", "to_real_device", "to_shown_device"]

HOST = torch.device("cpu")
_MOST = 64
_STAND_INS = tuple(torch.device("cpu", index) for index in range(_MOST))
_SHOWN = tuple(torch.device("cuda", index) for index in range(_MOST))


class DeviceTable:
    """The GPUs that code may name, and the current one. There is one virtual machine at a time in a process."""

    def __init__(self) -> None:
        self.count = 1
        self.current = 0
        self.was_chosen = False
        """Whether code has asked for the current one, or set it: that starts CUDA in a process."""
        self.used: set[int] = set()
        """Those on which there were tensors."""

    @contextlib.contextmanager
    def visible(self, count: int, current: int = 0) -> Iterator[None]:
        """So many are there for the time of the context."""
        before = self.count, self.current, self.was_chosen, self.used
        self.count, self.current, self.was_chosen, self.used = count, current, False, set()
        try:
            yield
        finally:
            self.count, self.current, self.was_chosen, self.used = before

    @property
    def is_started(self) -> bool:
        """As `torch.cuda.is_initialized()`: a device mesh chooses the GPU of its rank where nobody has yet."""
        return self.was_chosen or bool(self.used)

    def choose(self, device: Any = None) -> int:
        """Make it the current one; None leaves that as it is."""
        self.was_chosen = True
        self.current = self.index(device)
        return self.current

    def index(self, device: Any) -> int:
        """Of a device as `torch.cuda` functions take it: an index, a name, a device; None is the current one."""
        if device is None:
            return self.current
        if isinstance(device, int):
            wanted = device
        else:
            wanted = torch.device(device).index
        return self.checked(wanted) if wanted is not None and wanted >= 0 else self.current

    def checked(self, index: int) -> int:
        if index >= self.count:
            there = "there is one GPU, cuda:0" if self.count == 1 else f"there are {self.count} GPUs, from cuda:0 on"
            raise NoSuchGpu(f"CUDA error: invalid device ordinal (cuda:{index} was asked for, but {there})", index)
        return index


DEVICES = DeviceTable()


def is_virtual(device: torch.device) -> bool:
    """Whether a device, as torch's C++ code sees it, stands for a GPU."""
    return device.index is not None and device.type == "cpu"


def to_real_device(device: Any) -> Any:
    """`cuda`, `"cuda:1"`, an index or a CUDA device → its stand-in; anything else unchanged."""
    if isinstance(device, torch.device):
        return _stand_in(device.index) if device.type == "cuda" else device
    if isinstance(device, str):
        if device.startswith("cuda"):
            return _stand_in(torch.device(device).index)
        return HOST if device.startswith("cpu") else device
    if isinstance(device, int) and not isinstance(device, bool):
        return _stand_in(device)
    return device


def _stand_in(index: int | None) -> torch.device:
    if index is None:
        return _STAND_INS[DEVICES.current]
    return _STAND_INS[index] if index < DEVICES.count else _STAND_INS[DEVICES.checked(index)]


def to_shown_device(device: torch.device) -> torch.device:
    """What Python code is told: `cuda:N` for a stand-in."""
    return _SHOWN[device.index] if is_virtual(device) else device
