"""Matrix products and convolutions: which operands are put into another order first, and the kernels they run as."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from oomcast.trace import KernelCall, Operand, Phase

from ._graph import Form, Value

if TYPE_CHECKING:
    from ._lower import Builder

__all__ = ["lower_convolution", "lower_dot"]


def lower_dot(builder: Builder, inputs: list[Value], form: Form, dimensions: Any) -> Value:
    """A product wants its batch dimensions first and each other kind in one block; else a transposed copy is made."""
    (contracting, batch) = dimensions
    operands = [
        _in_blocks(builder, value, tuple(contracting[side]), tuple(batch[side])) for side, value in enumerate(inputs)
    ]
    return builder.make("dot", operands, form, detail=str(dimensions), expensive=True)


def _in_blocks(builder: Builder, value: Value, contracting: tuple[int, ...], batch: tuple[int, ...]) -> Value:
    shape = builder.graph.form(value).shape
    free = tuple(axis for axis in range(len(shape)) if axis not in contracting and axis not in batch)

    def in_order(order: tuple[int, ...]) -> bool:
        real = [axis for axis in order if shape[axis] != 1]
        return real == sorted(real)

    if in_order((*batch, *free, *contracting)) or in_order((*batch, *contracting, *free)):
        return value
    return builder.transpose(value, (*batch, *free, *contracting))


def lower_convolution(builder: Builder, inputs: list[Value], form: Form, parameters: Any) -> Value:
    """On a CPU, operands are put into channels-last order first; on a GPU, cuDNN takes any order."""
    numbers = parameters["dimension_numbers"]
    detail = tuple((key, str(value)) for key, value in sorted(parameters.items()) if key != "sharding")
    if builder.on_gpu:
        result = builder.make("convolution", inputs, form, detail=detail, expensive=True)
        node = builder.graph.nodes[result[0]]
        node.kernel = _kernel(builder, inputs, form, parameters, node.place.phase)
        return result
    image, output = _channels_last(numbers.lhs_spec), _channels_last(numbers.out_spec)
    # A kernel's specification names the outputs first, then the inputs: its order is the window, inputs, outputs.
    kernel = (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0])
    operands = (builder.transpose(inputs[0], image), builder.transpose(inputs[1], kernel))
    shape = tuple(form.shape[axis] for axis in output)
    result = builder.make("convolution", operands, form._replace(shape=shape), detail=detail, expensive=True)
    back = tuple(output.index(axis) for axis in range(len(output)))
    return builder.transpose(result, back)


def _channels_last(spec: tuple[int, ...]) -> tuple[int, ...]:
    return (spec[0], *spec[2:], spec[1])


def _kernel(builder: Builder, inputs: list[Value], form: Form, parameters: Any, phase: Phase) -> KernelCall:
    """As cuDNN has it: image, filter, output, whichever of them is computed."""
    numbers = parameters["dimension_numbers"]
    left, right = (builder.graph.form(value) for value in inputs)
    lhs = _permuted(left, numbers.lhs_spec)
    rhs = _permuted(right, numbers.rhs_spec)
    out = _permuted(form, numbers.out_spec)
    lows = tuple(pair[0] for pair in parameters["padding"])
    if phase is not Phase.BACKWARD:
        kind, tensors, stride, padding = "conv_fprop", (lhs, rhs, out), parameters["window_strides"], lows
    elif numbers.lhs_spec[1] == 0:  # it sums over the batch
        image, gradient = _swapped(lhs), _swapped(rhs)
        kind, tensors = "conv_wgrad", (image, _swapped(out), gradient)
        stride, padding = parameters["rhs_dilation"], lows
    else:
        kind, tensors, stride = "conv_dgrad", (out, _swapped(rhs), lhs), parameters["lhs_dilation"]
        padding = tuple(extent - 1 - low for extent, low in zip(rhs[2:], lows, strict=True))
    dilation = (1,) * len(lows) if kind == "conv_wgrad" else tuple(parameters["rhs_dilation"])
    groups = max(parameters["feature_group_count"], parameters["batch_group_count"])
    if kind == "conv_wgrad" and groups > 1:
        tensors = (tensors[0], (tensors[2][1], tensors[0][1] // groups, *tensors[1][2:]), tensors[2])
    attributes = (
        ("stride", tuple(stride)),
        ("padding", tuple(max(low, 0) for low in padding)),
        ("dilation", dilation),
        ("groups", groups),
    )
    return KernelCall(kind, tuple(Operand(shape, _strides(shape), form.dtype) for shape in tensors), attributes)


def _permuted(form: Form, spec: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(form.shape[axis] for axis in spec)


def _swapped(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[1], shape[0], *shape[2:])


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Channels last: XLA's choice for cards with tensor cores, and JAX's own usual order."""
    channels = shape[1]
    spatial = [channels * math.prod(shape[position + 1 :]) for position in range(2, len(shape))]
    return (channels * math.prod(shape[2:]), 1, *spatial)
