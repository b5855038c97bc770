"""Convolutions as the kernels they run as, for the workspace rules of `simulate/`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oomcast.trace import KernelCall, Operand

from ._graph import Node
from ._memory import Value

if TYPE_CHECKING:
    from ._executor import Executor

__all__ = ["convolution_kernel"]

_KINDS = {
    "Conv2D": "conv_fprop",
    "Conv3D": "conv_fprop",
    "DepthwiseConv2dNative": "conv_fprop",
    "Conv2DBackpropInput": "conv_dgrad",
    "Conv3DBackpropInputV2": "conv_dgrad",
    "DepthwiseConv2dNativeBackpropInput": "conv_dgrad",
    "Conv2DBackpropFilter": "conv_wgrad",
    "Conv3DBackpropFilterV2": "conv_wgrad",
    "DepthwiseConv2dNativeBackpropFilter": "conv_wgrad",
}


def convolution_kernel(executor: Executor, node: Node, inputs: list[Value], outputs: list[Value]) -> None:
    """Write the call into the trace if the node is a convolution: input, filter, output, as cuDNN has them.

    TensorFlow's layout optimizer turns fp32 convolutions to NCHW before they run on a GPU and leaves half precision in
    NHWC on cards with tensor cores.
    """
    kind = _KINDS.get(node.type)
    if kind is None:
        return
    if kind == "conv_fprop":
        x, weight, y = inputs[0].shape, inputs[1].shape, outputs[0].shape
    elif kind == "conv_dgrad":
        x, weight, y = outputs[0].shape, inputs[1].shape, inputs[2].shape
    else:
        x, weight, y = inputs[0].shape, outputs[0].shape, inputs[2].shape
    operation = node.operation
    channels_last = operation.get_attr("data_format").decode().endswith("C")
    depthwise = node.type.startswith("Depthwise")
    x, y = (_channels_first(shape, channels_last) for shape in (x, y))
    *window, into, out = weight
    plain = (into * out, 1, *window) if depthwise else (out, into, *window)
    dtype = outputs[0].dtype
    stride, dilation = (_spatial(operation.get_attr(name), channels_last) for name in ("strides", "dilations"))
    attributes = (
        ("stride", stride),
        ("padding", _padding(operation, x, y, tuple(window), stride, dilation, channels_last)),
        ("dilation", dilation),
        ("groups", x[1] // plain[1]),
    )
    last = dtype != "float32"
    operands = tuple(Operand(shape, _strides(shape, last), dtype) for shape in (x, plain, y))
    executor.memory.kernel(KernelCall(kind, operands, attributes))


def _channels_first(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    return (shape[0], shape[-1], *shape[1:-1]) if channels_last else shape


def _spatial(values: Any, channels_last: bool) -> tuple[int, ...]:
    return tuple(values[1:-1]) if channels_last else tuple(values[2:])


def _padding(
    operation: Any,
    x: tuple[int, ...],
    y: tuple[int, ...],
    window: tuple[int, ...],
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    channels_last: bool,
) -> tuple[int, ...]:
    """The smaller side of each: what is uneven, TensorFlow pads by a copy before it calls cuDNN."""
    scheme = operation.get_attr("padding").decode()
    if scheme == "EXPLICIT":
        pairs = operation.get_attr("explicit_paddings")
        firsts = pairs[2:-2:2] if channels_last else pairs[4::2]
        return tuple(firsts)
    if scheme == "VALID":
        return (0,) * len(window)
    needed = [
        max((size - 1) * step + (extent - 1) * spread + 1 - whole, 0)
        for size, step, extent, spread, whole in zip(y[2:], stride, window, dilation, x[2:], strict=True)
    ]
    return tuple(total // 2 for total in needed)


def _strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    if not channels_last:
        return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))
    channels = shape[1]
    spatial = [channels * math.prod(shape[position + 1 :]) for position in range(2, len(shape))]
    return (channels * math.prod(shape[2:]), 1, *spatial)
