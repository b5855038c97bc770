"""A step's graph with all shapes known, as MXNet indexes it: nodes in order, numbered values between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .._tensor import Tensor

__all__ = ["Graph", "Node", "Tensor"]


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
