"""In which layout convolutions leave their results on the target: what fake tensors ask torch's C++ code.

A build of torch without CUDA answers as if there were no cuDNN: contiguous. Inductor turns networks of convolutions to
channels-last, and would then plan a copy behind each convolution, forward and backward, that no GPU makes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import FakeTensorMode

from ....devices import Gpu
from ..patches import Patches

__all__ = ["leave_layouts_as_on"]

_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def leave_layouts_as_on(gpu: Gpu, patches: Patches) -> None:
    """Until the patches are taken back, fake convolutions on CUDA are laid out as cuDNN has them on that GPU."""
    without = _without_cudnn(gpu)
    determine = torch._C._conv_determine_backend_memory_format

    def on_target(input: torch.Tensor, weight: torch.Tensor, backend: Any) -> torch.memory_format:
        if input.device.type != "cuda":
            return determine(input, weight, backend)
        return torch.contiguous_format if without & {input.dtype, weight.dtype} else _of_cudnn(input, weight)

    patches.set(torch._C, "_conv_determine_backend_memory_format", on_target)
    if without != _remembered[0]:
        _remembered[0] = without
        FakeTensorMode.cache_clear()


_remembered: list[frozenset[torch.dtype] | None] = [None]
"""For which types cuDNN was not there when fake tensors were last asked: they remember what they were told, for all
modes of the process."""


def _without_cudnn(gpu: Gpu) -> frozenset[torch.dtype]:
    """aten/src/ATen/native/Convolution.cpp, `ConvParams::use_cudnn`: bfloat16 from sm_80 on. In channels-last,
    depthwise convolutions are cuDNN's too (`use_cudnn_depthwise`)."""
    if not torch.backends.cudnn.enabled:
        return frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
    return frozenset({torch.bfloat16}) if gpu.compute_capability < (8, 0) else frozenset()


def _of_cudnn(input: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """aten/src/ATen/native/ConvUtils.h, `cudnn_conv_suggest_memory_format`: channels-last if either is; never for
    float64."""
    layout = _LAYOUTS.get(weight.ndim)
    if torch.float64 in (input.dtype, weight.dtype) or layout is None:
        return torch.contiguous_format
    either = layout in (suggest_memory_format(input), suggest_memory_format(weight))
    return layout if either else torch.contiguous_format
