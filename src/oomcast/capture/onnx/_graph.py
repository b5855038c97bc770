"""An ONNX model with all shapes known: what its nodes read and write, in an order in which they can run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._tensor import Tensor

__all__ = ["Graph", "Node", "Tensor"]


@dataclass(frozen=True)
class Node:
    type: str
    name: str
    inputs: tuple[str, ...]
    """Names of values; "" where an optional input is left out."""
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    scratch: int = 0
    """Bytes that the bodies of an If or a Loop need while it runs."""


@dataclass(frozen=True)
class Graph:
    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    """By name, for everything that is computed or given."""
    weights: tuple[str, ...]
    """Initialisers."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    unsupported: Mapping[str, int]
    """Custom operators → how many nodes."""
