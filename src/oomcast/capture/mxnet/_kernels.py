"""Convolutions as the kernels they run as, for the workspace rules of `simulate/`."""

from __future__ import annotations

import math
from collections.abc import Collection

from oomcast.trace import KernelCall, Operand

from ._graph import Graph, Node

__all__ = ["convolutions"]

_TYPES = ("Convolution", "Deconvolution")


def convolutions(graph: Graph, node: Node, wanted: Collection[int]) -> list[KernelCall]:
    """What cuDNN is called for by this node; of gradients, only for those that are wanted."""
    if node.type in _TYPES:
        x, weight, y = node.inputs[0], node.inputs[1], node.outputs[0]
        return [_call(graph, node, "conv_fprop", x, weight, y)]
    forward = node.type.removeprefix("_backward_")
    if forward not in _TYPES or forward == node.type:
        return []
    y, x, weight = node.inputs[:3]
    kinds = [kind for kind, value in zip(("conv_dgrad", "conv_wgrad"), node.outputs, strict=False) if value in wanted]
    return [_call(graph, node, kind, x, weight, y) for kind in kinds]


def _call(graph: Graph, node: Node, kind: str, x: int, weight: int, y: int) -> KernelCall:
    """Input, filter and output, as cuDNN has them."""
    images = (graph.tensors[x].shape, graph.tensors[y].shape)
    if node.type.endswith("Deconvolution"):
        # It is the gradient of the convolution that goes the other way.
        images = images[::-1]
        kind = {"conv_fprop": "conv_dgrad", "conv_dgrad": "conv_fprop"}.get(kind, kind)
    spatial = len(images[0]) - 2
    channels_last = node.attributes.get("layout", "None").endswith("C")
    settings = (
        ("stride", _numbers(node, "stride", spatial, 1)),
        ("padding", _numbers(node, "pad", spatial, 0)),
        ("dilation", _numbers(node, "dilate", spatial, 1)),
        ("groups", int(node.attributes.get("num_group", "1"))),
    )
    shapes = [images[0], graph.tensors[weight].shape, images[1]]
    if channels_last:
        shapes = [(shape[0], shape[-1], *shape[1:-1]) for shape in shapes]
    dtype = graph.tensors[x].dtype
    operands = tuple(Operand(tuple(shape), _strides(tuple(shape), channels_last), dtype) for shape in shapes)
    return KernelCall(kind, operands, settings)


def _numbers(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    given = node.attributes.get(name, "").strip("()[] ")
    return tuple(int(part) for part in given.split(",") if part.strip()) or (default,) * count


def _strides(shape: tuple[int, ...], channels_last: bool) -> tuple[int, ...]:
    if not channels_last:
        return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))
    spatial = [shape[1] * math.prod(shape[position + 1 :]) for position in range(2, len(shape))]
    return (shape[1] * math.prod(shape[2:]), 1, *spatial)
