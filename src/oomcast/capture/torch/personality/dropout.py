"""Dropout as CUDA runs it: one fused kernel that keeps a mask of one byte an element.

The other dropouts (`alpha_dropout`, `feature_dropout`, their in-place forms) and `rrelu` are composites without a
branch for CUDA (aten/src/ATen/native/Dropout.cpp), so torch's own serve.
"""

from __future__ import annotations

import torch

from .overrides import Overrides, composite
from .platforms import on_virtual_gpu

__all__ = ["install"]

_dropout_composite = composite(torch.ops.aten.dropout.default)
_native_dropout_op = torch.ops.aten.native_dropout.default


def install(overrides: Overrides) -> None:
    """Put CUDA's dropout in place."""
    overrides.add("dropout", _dropout, "AutogradCPU")


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if train and 0 < p < 1 and on_virtual_gpu(input) and input.numel():
        return _native_dropout_op(input, p, train)[0]
    return _dropout_composite(input, p, train)
