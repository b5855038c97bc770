"""Composite operators with a branch for CUDA or for tensor subclasses, where torch would take the wrong one for fakes.

- `softmax` and `log_softmax` of fp16 with `dtype=float32` (what autocast makes of them) convert inside the kernel on
  CUDA; on CPU, and for bf16, a converted copy comes first (aten/src/ATen/native/SoftMax.cpp).
- `linear` with a bias and an input that cannot be flattened adds the bias in place; for subclasses torch does it out of
  place (aten/src/ATen/native/Linear.cpp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .overrides import Overrides, composite
from .platforms import on_virtual_gpu

__all__ = ["install"]

_aten = torch.ops.aten
_linear_composite = composite(_aten.linear.default)


def install(overrides: Overrides) -> None:
    """Put CUDA's branches in place."""
    overrides.add("softmax.int", _converting(_aten.softmax.int, _aten._softmax.default), "AutogradCPU")
    overrides.add("log_softmax.int", _converting(_aten.log_softmax.int, _aten._log_softmax.default), "AutogradCPU")
    overrides.add("linear", _linear, "AutogradCPU")


def _converting(op: Any, kernel: Any) -> Callable[..., torch.Tensor]:
    usual = composite(op)

    def softmax(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        if dtype == torch.float32 and self.dtype == torch.float16 and on_virtual_gpu(self):
            return kernel(self, dim, True)
        return usual(self, dim, dtype)

    return softmax


def _linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    if bias is None or input.dim() <= 2 or input.is_contiguous() or not on_virtual_gpu(input):
        return _linear_composite(input, weight, bias)
    return torch.matmul(input, weight.t()).add_(bias)
