"""A step's graph as MXNet indexes it, with all shapes known; its convolutions as the kernels that they run as."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from ...trace import KernelCall, Operand
from ..tensors import Tensor, dense_strides

__all__ = ["Graph", "Node", "Tensor", "convolutions"]

# -------- A step's graph with all shapes known, as MXNet indexes it: nodes in order, numbered values between them


@dataclass(frozen=True)
class Node:
    type: str
    """The operator; "" for a variable."""
    name: str
    inputs: tuple[int, ...]
    """Numbers of values."""
    outputs: tuple[int, ...]
    attributes: Mapping[str, str]
    controls: tuple[int, ...]
    """Nodes that must run before, though nothing is read of them; of a gradient, the node whose gradient it is."""


@dataclass(frozen=True)
class Graph:
    """The nodes of the forward pass come first, in the order in which a search from the outputs finds them."""

    nodes: tuple[Node, ...]
    tensors: Mapping[int, Tensor]
    """By number of the value."""
    outputs: tuple[int, ...]
    gradients: Mapping[str, int]
    """Variable → its gradient's value."""
    forward: int
    """How many nodes the forward pass has."""

    def variables(self) -> dict[str, int]:
        return {node.name: node.outputs[0] for node in self.nodes if not node.type}

    def backward_for(self, wanted: Iterable[str]) -> list[Node]:
        """The nodes of the backward pass that these variables' gradients need, in MXNet's order."""
        maker = {value: number for number, node in enumerate(self.nodes) for value in node.outputs}
        seen = set(range(self.forward))
        order: list[Node] = []
        for name in wanted:
            stack = [(maker[self.gradients[name]], False)]
            while stack:
                number, is_left = stack.pop()
                if is_left:
                    order.append(self.nodes[number])
                elif number not in seen:
                    seen.add(number)
                    node = self.nodes[number]
                    stack.append((number, True))
                    sources = [*(maker[value] for value in node.inputs), *node.controls]
                    stack.extend((source, False) for source in reversed(sources))
        return order


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
    operands = tuple(Operand(tuple(shape), dense_strides(tuple(shape), channels_last), dtype) for shape in shapes)
    return KernelCall(kind, operands, settings)


def _numbers(node: Node, name: str, count: int, default: int) -> tuple[int, ...]:
    given = node.attributes.get(name, "").strip("()[] ")
    return tuple(int(part) for part in given.split(",") if part.strip()) or (default,) * count
