"""A convolution as cuDNN is asked about it, and whether torch asks cuDNN at all."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...trace import KernelCall

__all__ = ["KINDS", "Query", "native_columns", "query_of", "takes_cudnn"]

KINDS = {"conv_fprop": "fprop", "conv_dgrad": "dgrad", "conv_wgrad": "wgrad"}

Shape = tuple[int, ...]

INT_MAX = 2**31 - 1


class Query(NamedTuple):
    """One convolution, with 2 or 3 spatial dimensions; all tensors have one dtype and one layout."""

    kind: str
    """`fprop`, `dgrad` or `wgrad`."""
    x: Shape
    w: Shape
    y: Shape
    channels_last: bool
    dtype: str
    """As torch writes it: `float32`, `float16`, `bfloat16`, `float64`."""
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def groups(self) -> int:
        return self.x[1] // self.w[1]


def query_of(call: KernelCall) -> Query | None:
    """The question a recorded call amounts to; None if it is not a convolution of the usual form."""
    kind = KINDS.get(call.operator)
    if kind is None or len(call.operands) != 3:
        return None
    attributes: dict[str, Any] = dict(call.attributes)
    x, w, y = call.operands
    stride, padding, dilation = (tuple(attributes[name]) for name in ("stride", "padding", "dilation"))
    # As torch does: the format of the input or of the weight decides, and all three tensors are brought into it.
    channels_last = any(_is_channels_last(o.shape, o.stride) for o in (x, w)) and x.dtype != "float64"
    shapes = [x.shape, w.shape, y.shape]
    if len(x.shape) == 3:  # torch runs one dimension as two
        shapes = [(*shape[:2], 1, *shape[2:]) for shape in shapes]
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    if len(shapes[0]) not in (4, 5) or any(len(shape) != len(shapes[0]) for shape in shapes):
        return None
    spatial = len(shapes[0]) - 2
    stride, padding, dilation = (_spread(values, spatial) for values in (stride, padding, dilation))
    return Query(kind, shapes[0], shapes[1], shapes[2], channels_last, x.dtype, stride, padding, dilation)


def _spread(values: Shape, spatial: int) -> Shape:
    return values * spatial if len(values) == 1 else values


def _is_channels_last(shape: Shape, stride: Shape) -> bool:
    """torch's `is_channels_last_strides`: ambiguous strides (one channel, 1×1 images) count as the plain layout."""
    if len(shape) not in (4, 5) or stride[1] == 0:
        return False
    least = 0
    for dimension in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dimension] == 0 or stride[dimension] < least:
            return False
        if dimension == 0 and least == stride[1]:
            return False
        least = stride[dimension] * max(shape[dimension], 1)
    return True


def takes_cudnn(query: Query, capability: tuple[int, int], cudnn: tuple[int, int], *, transposed: bool = False) -> bool:
    """Whether torch's `_select_conv_backend` sends it to cuDNN on that GPU; else kernels of torch's own run.

    Follows ATen/native/Convolution.cpp: `use_cudnn`, `is_depthwise`, `use_cudnn_depthwise`.
    """
    if query.dtype not in ("float32", "float64", "float16", "bfloat16"):
        return False
    if query.dtype == "bfloat16" and capability < (8, 0):
        return False
    if cudnn < (9, 3) and max(math.prod(query.x[1:]), math.prod(query.y[1:])) > INT_MAX:
        return False
    depthwise = query.groups == query.x[1] > 1 and query.w[0] % query.x[1] == 0
    return not depthwise or transposed or _depthwise_takes_cudnn(query, capability, cudnn)


def _depthwise_takes_cudnn(query: Query, capability: tuple[int, int], cudnn: tuple[int, int]) -> bool:
    if max(math.prod(query.x), math.prod(query.w)) > INT_MAX:  # torch's own kernels cannot index it
        return cudnn >= (9, 3) and not (query.channels_last and (9, 10) < cudnn < (9, 15))
    if query.channels_last:
        return True
    height, width = query.x[-2:]
    return (
        capability >= (7, 0)
        and query.dtype == "float16"
        and len(query.x) == 4
        and all(step == 1 for step in query.dilation)
        and (query.stride[0] == query.stride[1] or height == 1)
        and query.x[1] >= 32
        and _depthwise_is_fast(query, height, width)
    )


def _depthwise_is_fast(query: Query, height: int, width: int) -> bool:
    """torch's `check_cudnn_depthwise_workload_with_filter`."""
    batch, channels = query.x[:2]
    stride = query.stride[1]
    if height == 1 and stride == 1:
        return True
    size = query.w[3]
    if query.w[2] != size or size not in (1, 3, 5) or width < 7:
        return False
    if stride != 2:
        return stride == 1
    if batch == 1:
        return size != 1 or width <= 28
    if size == 1:
        return batch <= 16 and channels >= 128 and width <= 7
    return channels >= 512 or (channels >= 256 and width >= 28)


def native_columns(query: Query, itemsize: int) -> int:
    """Bytes of the unfolded image that torch's own convolution (`slow_conv2d`) works on, one image at a time.

    Depthwise kernels read their input directly and take nothing.
    """
    pointwise = all(size == 1 for size in query.w[2:])
    plain = all(s == 1 for s in query.stride) and all(p == 0 for p in query.padding)
    if (query.w[1] == 1 and query.groups > 1) or (pointwise and plain):
        return 0
    return query.w[1] * math.prod(query.w[2:]) * math.prod(query.y[2:]) * itemsize
