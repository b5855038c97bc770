"""torch's fake kernels that ask for the device: those must hear "cuda" for tensors of the virtual GPU.

Most ask by one function, `torch._meta_registrations.device_hint`, which is replaced for the time of a capture.
"""

from __future__ import annotations

import torch._meta_registrations as registrations
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["DeviceHints"]


class DeviceHints:
    """Replaces torch's device hint, and gives it back."""

    def __init__(self) -> None:
        self._original = registrations.device_hint

    def install(self) -> None:
        original = self._original

        def device_hint(tensor: object) -> str:
            if isinstance(tensor, FakeTensor):
                device = tensor.fake_device
                return "cuda" if device.type == "cpu" and device.index is not None else device.type
            return original(tensor)

        registrations.device_hint = device_hint

    def remove(self) -> None:
        registrations.device_hint = self._original
