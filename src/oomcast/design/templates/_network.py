"""A network as data: layers by name, each with its kind, its arguments and the layers that it reads.

Nothing here knows a shape: what a layer gives for what it is given is the specification's matter (`design.spec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .._factors import Value

__all__ = ["Input", "Layer", "Loss", "Network"]

Loss = Literal["classes", "tokens", "pixels", "dice"]
"""Cross entropy of one class for a sample, for each token or for each pixel; or the Dice loss of a mask."""


@dataclass(frozen=True)
class Input:
    """One sample: real numbers with the channels first, or tokens, whole numbers below `vocabulary`."""

    shape: tuple[int, ...]
    vocabulary: int | None = None
    name: str = "x"


@dataclass(frozen=True)
class Layer:
    """One layer. `block` is the part of the network it belongs to, under which it is written."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    arguments: Mapping[str, Value] = field(default_factory=dict)
    block: str = ""


@dataclass(frozen=True)
class Network:
    """A layer graph with what its training needs. The last layer's output is the network's."""

    name: str
    title: str
    """One sentence that says what it is."""
    batch_size: int
    input: Input
    layers: tuple[Layer, ...]
    loss: Loss
    classes: int
    optimizer: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    """The template's parameters in which it differs from the template as it is."""
