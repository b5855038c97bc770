"""TensorFlow's convolutions and recurrent layers as kernel calls, for the workspace rules of `simulate/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...trace import KernelCall, Operand
from ..tensors import dense_strides
from .graph import Node
from .memory import Value

if TYPE_CHECKING:
    from .executor import Executor

__all__ = ["RECURRENT", "convolution_kernel"]

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
    operands = tuple(Operand(shape, dense_strides(shape, last), dtype) for shape in (x, plain, y))
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


# -------- cuDNN's recurrent layers, which Keras calls in place of a loop where there is a GPU


_GATES = {"lstm": 4, "gru": 3, "rnn_relu": 1, "rnn_tanh": 1}


def _forward(executor: Executor, node: Node, inputs: list[Value]) -> list[Value]:
    """Outputs as inferred, but for the reserve: every gate's value, the cell and its activation, for every step."""
    outer, inner, _ = inputs[0].shape
    batch = inner if node.operation.get_attr("time_major") else outer
    states = inputs[1].elements // batch  # units of all layers
    kind = node.operation.get_attr("rnn_mode").decode()
    kept = _GATES[kind] + (2 if kind == "lstm" else 1)
    reserve = (outer * inner * states * kept,) if node.operation.get_attr("is_training") else (0,)
    outputs = []
    for position, spec in enumerate(node.outputs):
        shape = reserve if position == 3 else (0,) if position == 4 else spec.shape
        outputs.append(executor.new(node, spec, shape))
    return outputs


RECURRENT: dict[str, Any] = {"CudnnRNNV3": _forward}
