"""A computation as XLA sees it: instructions with shapes, in an order in which they could run."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

from oomcast.trace import KernelCall, Phase

from .._tensor import Tensor

__all__ = ["Form", "Graph", "Node", "Place", "Value"]

Value = tuple[int, int]
"""Number of a node, and which of its outputs."""


class Form(Tensor):
    __slots__ = ()

    @property
    def true_rank(self) -> int:
        """Dimensions that are not of extent 1."""
        return sum(extent != 1 for extent in self.shape)


class Place(NamedTuple):
    """Where in the user's program an instruction comes from."""

    phase: Phase
    module: str
    source: str


@dataclass(slots=True)
class Node:
    op: str
    inputs: tuple[Value, ...]
    outputs: tuple[Form, ...]
    place: Place
    detail: Hashable = None
    """What tells it from others of the same kind: dimensions, constants …"""
    expensive: bool = False
    """Whether computing it twice is worse than keeping it."""
    scratch: int = 0
    """Bytes that it needs while it runs, beside its inputs and outputs."""
    updates: tuple[tuple[int, int], ...] = ()
    """(input, output) pairs where the output can take over the input's memory."""
    kernel: KernelCall | None = None


@dataclass(slots=True)
class Graph:
    """Nodes are numbered so that inputs come before their users."""

    nodes: list[Node] = field(default_factory=list)
    arguments: list[Value] = field(default_factory=list)
    results: list[Value] = field(default_factory=list)

    def form(self, value: Value) -> Form:
        return self.nodes[value[0]].outputs[value[1]]
