"""torchvision's kernels on CUDA: the buffers that they take for themselves, as torchvision/csrc/ops/cuda has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["SCRATCH"]

_IMAGES_AT_ONCE = 32
_BITS = 64


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.itemsize)


def _copies(*tensors: torch.Tensor) -> tuple[int, ...]:
    return tuple(_bytes(tensor) for tensor in tensors if not tensor.is_contiguous())


def _pooling(args: Any, kwargs: Any) -> tuple[int, ...]:
    """The feature map and the boxes are read as contiguous ones."""
    return _copies(*args[:2])


def _pooling_backward(args: Any, kwargs: Any) -> tuple[int, ...]:
    """The gradient is read by its strides, the boxes are not."""
    return _copies(args[1])


def _nms(args: Any, kwargs: Any) -> tuple[int, ...]:
    """Scores and their order, the sorted boxes, a bit for each pair of boxes, and a flag for each box."""
    boxes, scores = args[:2]
    count = boxes.shape[0]
    return (_bytes(scores), count * 8, _bytes(boxes), count * -(-count // _BITS) * 8, count)


def _columns(input: torch.Tensor, weight: torch.Tensor, offset: torch.Tensor) -> int:
    """What im2col writes for the images that are convolved at once: the most, up to 32, that divide the batch."""
    batch = input.shape[0]
    at_once = max((n for n in range(1, _IMAGES_AT_ONCE + 1) if batch % n == 0), default=1)
    places = offset.shape[-2] * offset.shape[-1]
    return int(input.shape[1] * weight.shape[2] * weight.shape[3] * at_once * places * input.itemsize)


def _deformable(args: Any, kwargs: Any) -> tuple[int, ...]:
    """The output twice before the bias is added to it, and the columns."""
    input, weight, offset, mask, bias = args[:5]
    out = input.shape[0] * weight.shape[0] * offset.shape[-2] * offset.shape[-1] * input.itemsize
    return (*_copies(input, weight, offset, mask, bias), out, out, _columns(input, weight, offset))


def _deformable_backward(args: Any, kwargs: Any) -> tuple[int, ...]:
    """The gradient with the channels before the images, and the columns."""
    grad, input, weight, offset, mask, bias = args[:6]
    return (*_copies(grad, input, weight, offset, mask, bias), _bytes(grad), _columns(input, weight, offset))


SCRATCH: dict[str, tuple[Callable[[Any, Any], tuple[int, ...]], str]] = {
    **{
        f"torchvision::{name}": (_pooling, "contiguous copies: torchvision's kernels of the same name")
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
    },
    **{
        f"torchvision::_{name}_backward": (_pooling_backward, "contiguous copies: torchvision's kernels")
        for name in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool")
    },
    "torchvision::nms": (_nms, "order, sorted boxes, bits for pairs: nms_kernel.cu"),
    "torchvision::deform_conv2d": (_deformable, "columns, the output before its bias: deform_conv2d_kernel.cu"),
    "torchvision::_deform_conv2d_backward": (_deformable_backward, "columns: deform_conv2d_kernel.cu"),
}
"""By name: torchvision is loaded when a job pleases."""
