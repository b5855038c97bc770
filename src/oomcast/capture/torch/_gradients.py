"""How the autograd engine adds gradients: in place where it owns the buffer.

torch refuses to do so for tensor subclasses, which fake tensors are: it makes a third tensor instead. On a GPU there is
no third tensor, so the recorder turns those additions into in-place ones, under the engine's own conditions: gradient
mode is off, the buffer is dense, and nobody else holds it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["is_engine_accumulation"]

_ENGINE_FRAMES = {"_engine_run_backward"}


def is_engine_accumulation(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether this `add` is the engine summing into a buffer that it owns alone."""
    if kwargs or torch.is_grad_enabled() or len(args) != 2:
        return False
    buffer, incoming = args
    if not isinstance(buffer, FakeTensor) or not isinstance(incoming, FakeTensor):
        return False
    if buffer.shape != incoming.shape or buffer.dtype != incoming.dtype:
        return False
    # Frames: this function, the recorder's two, then whoever called torch; C++ nodes have no frame of their own.
    if sys._getframe(3).f_code.co_name not in _ENGINE_FRAMES:
        return False
    return torch._C._storage_Use_Count(buffer.untyped_storage()._cdata) <= _SOLE_OWNER and _is_dense(buffer)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Non-overlapping and dense, in any order of dimensions."""
    expected = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent != 1:
            if stride != expected:
                return False
            expected *= extent
    return True


_SOLE_OWNER = 2
"""The engine's reference, and the Python storage object that the recorder's weak reference keeps."""
