"""torch's fake kernels that ask for the device: those must hear "cuda" for tensors of the virtual GPU.

Most ask by one function, `torch._meta_registrations.device_hint`, which is replaced for the time of a capture: FFTs,
`embedding_bag`, `pixel_shuffle`, `channel_shuffle`, `nonzero_static`, adaptive max pooling, scaled matmuls, `histc`.

The others read `device.type`, and their answers are corrected: here the log-sigmoid (CUDA keeps no buffer) and the
reflection and replication pads (CUDA's outputs are contiguous), in `normalization` the norms. Left as they are, since
only strides could differ: upsampling of channels-last inputs with fewer than 4 (nearest) or 16 (bilinear) channels,
which CUDA makes contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch._meta_registrations as registrations
from torch._subclasses.fake_tensor import FakeTensor

from ..operator_names import by_operator
from .platforms import on_virtual_gpu

__all__ = ["OUTPUT_CORRECTIONS", "DeviceHints"]


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


def _log_sigmoid_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    if not on_virtual_gpu(args[0]):
        return out
    return out[0], torch.empty(0, dtype=out[1].dtype, device=out[1].device)


def _contiguous_output(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    if out.is_contiguous() or not on_virtual_gpu(args[0]):
        return out
    return torch.empty(out.shape, dtype=out.dtype, device=out.device)


OUTPUT_CORRECTIONS: dict[Any, Callable[..., Any]] = by_operator(
    {
        "log_sigmoid_forward": _log_sigmoid_outputs,
        **{f"{kind}_pad{dims}d": _contiguous_output for kind in ("reflection", "replication") for dims in (1, 2, 3)},
    }
)
