"""Convolutions as the kernels they run as, for the workspace rules of `simulate/`."""

from __future__ import annotations

import math

from oomcast.trace import KernelCall, Operand

from ._graph import Graph, Node

__all__ = ["convolution"]


def convolution(graph: Graph, node: Node, kind: str = "conv_fprop") -> KernelCall | None:
    """Input, filter and output, as cuDNN has them; None for other nodes. ONNX Runtime keeps NCHW."""
    if node.type not in ("Conv", "ConvTranspose"):
        return None
    x, weight, y = (graph.tensors[name] for name in (node.inputs[0], node.inputs[1], node.outputs[0]))
    images = (x.shape, y.shape)
    if node.type == "ConvTranspose":
        # It is the gradient of the convolution that goes the other way.
        images = images[::-1]
        kind = {"conv_fprop": "conv_dgrad", "conv_dgrad": "conv_fprop"}.get(kind, kind)
    spatial = len(x.shape) - 2
    attributes = node.attributes
    pads = tuple(attributes.get("pads", (0,) * (2 * spatial)))
    settings = (
        ("stride", tuple(attributes.get("strides", (1,) * spatial))),
        ("padding", pads[:spatial]),
        ("dilation", tuple(attributes.get("dilations", (1,) * spatial))),
        ("groups", int(attributes.get("group", 1))),
    )
    operands = tuple(Operand(shape, _strides(shape), x.dtype) for shape in (images[0], weight.shape, images[1]))
    return KernelCall(kind, operands, settings)


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[position + 1 :]) for position in range(len(shape)))
