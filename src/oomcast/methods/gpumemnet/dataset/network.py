"""One network of a data set as plain data: what was drawn, the widths that follow, and what it will roughly hold.

Standard library only: it is part of the files that real runs execute.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..published_plans import DENSE_LAYERS, GROWTH, Block, cnn_parameters, cnn_plans, mlp_parameters, mlp_widths

__all__ = [
    "ARCHITECTURES",
    "KINDS",
    "Network",
    "NetworkJob",
    "Size",
    "cnn_plan",
    "dense_growth",
    "feed_forward",
    "plain_widths",
    "size_of",
]

KINDS = ("mlp", "cnn", "transformer")
ARCHITECTURES = ("pyramid", "uniform", "bottleneck", "gradual", "hourglass", "residual", "dense")
NARROW = 4
"""A bottleneck has a quarter of the width, and a dense layer adds a quarter of it."""
_KEEP_THEIR_OUTPUT = ("relu", "tanh")
"""For the backward pass; the other functions keep their input."""


@dataclass(frozen=True)
class Network:
    """The sizes mean what is natural for the kind; what a kind does not have is None."""

    kind: str
    architecture: str
    activation: str
    batch_norm: bool
    dropout: float | None
    """The rate, where it is used."""
    depth: int
    """Hidden layers of an MLP, convolutions of a CNN, encoder layers of a Transformer."""
    width: int
    """Features of an MLP's first hidden layer, filters of a CNN's first convolution, features of a token."""
    input_size: int
    """Features of an MLP's input, edge of a CNN's image, tokens of a Transformer's sequence."""
    output_size: int
    """The number of classes."""
    batch_size: int
    channels: int | None = None
    """The channels of a CNN's image; None for other networks."""
    hidden: int | None = None
    """Features of the widest feed-forward part of a Transformer."""
    heads: int | None = None
    vocabulary: int | None = None


def plain_widths(network: Network) -> tuple[int, ...]:
    """Features of an MLP from the input to the output, where each layer reads only the one before."""
    if network.architecture == "hourglass":
        hidden = _hourglass(network.width, network.depth)
        return (network.input_size, *hidden, network.output_size)
    if network.depth == 1:
        return (network.input_size, network.width, network.output_size)
    widths = mlp_widths(network.architecture, network.width, network.output_size, network.depth - 1)
    return (network.input_size, *widths)


def dense_growth(network: Network) -> int:
    """Features that each layer of a dense MLP adds to what the next ones read."""
    return max(network.width // NARROW, 1)


def cnn_plan(network: Network) -> tuple[Block, ...]:
    channels = network.channels or 1
    if network.architecture != "dense":
        # A residual block has two convolutions: there are no fewer.
        depth = max(network.depth, 2) if network.architecture == "residual" else network.depth
        *_, plan = cnn_plans(network.architecture, channels, network.width, depth, network.input_size)
        return plan
    # GPUMemNet's dense networks begin with the image itself; a first convolution gives the width a meaning.
    *_, plan = cnn_plans("dense", network.width, network.width, network.depth, network.input_size)
    return (Block("conv", channels, network.width), *plan)


def feed_forward(network: Network) -> tuple[int, ...]:
    """Features of the feed-forward part of each encoder layer."""
    widest, depth = network.hidden or network.width, network.depth
    least = max(widest // 8, 1)
    if network.architecture == "hourglass":
        return _hourglass(widest, depth)
    if network.architecture == "bottleneck":
        return tuple(widest if i in (0, depth - 1) else max(widest // NARROW, 1) for i in range(depth))
    if network.architecture in ("pyramid", "gradual"):
        return mlp_widths(network.architecture, widest, least, depth)[:depth]
    return (widest,) * depth


def _hourglass(widest: int, depth: int) -> tuple[int, ...]:
    """Halves to the middle and doubles again."""
    return tuple(max(widest >> min(i, depth - 1 - i), 1) for i in range(depth))


@dataclass(frozen=True)
class Size:
    """A rough count, for choosing what to build: never a label."""

    parameters: int
    kept: float
    """Values that one sample leaves for the backward pass."""
    largest: int
    """Values of the largest output of a layer, for one sample."""

    def expected_bytes(self, batch_size: int) -> int:
        """With Adam: its state, gradients, and a temporary as large as the parameters while it steps."""
        passes = 3 * self.parameters + batch_size * (self.kept + 2 * self.largest)
        return round(4 * max(passes, 5 * self.parameters))


def size_of(network: Network) -> Size:
    return {"mlp": _mlp_size, "cnn": _cnn_size, "transformer": _transformer_size}[network.kind](network)


def _kept_of_layer(network: Network) -> float:
    """Tensors as large as its output that a layer leaves, with its norm, activation and dropout."""
    kept = float(network.batch_norm)
    if network.dropout is not None:
        return kept + 1.25 + (network.activation != "identity")
    return kept + 1 + (network.activation not in ("identity", *_KEEP_THEIR_OUTPUT))


def _mlp_size(network: Network) -> Size:
    kept, width = _kept_of_layer(network), network.width
    if network.architecture == "dense":
        growth = dense_growth(network)
        read = [width + i * growth for i in range(network.depth)]
        layers = [(network.input_size, width), *((a, growth) for a in read[:-1]), (read[-1], network.output_size)]
        return Size(sum(a * b + b for a, b in layers), kept * sum(b for _, b in layers) + sum(read), read[-1])
    widths, sums = plain_widths(network), 0
    if network.architecture == "residual":
        widths = (network.input_size, *(width,) * network.depth, network.output_size)
        sums = width * ((network.depth - 1) // 2)
    return Size(mlp_parameters(widths, network.batch_norm), kept * sum(widths[1:]) + widths[0] + sums, max(widths))


def _cnn_size(network: Network) -> Size:
    plan, kept = cnn_plan(network), _kept_of_layer(network)
    area, total, largest = network.input_size**2, 0.0, 0
    for block in plan:
        area //= block.stride**2
        outputs = block.outputs
        if block.kind == "dense":
            read = [block.inputs + i * GROWTH for i in range(1, DENSE_LAYERS + 1)]
            total += area * (sum(read) + kept * GROWTH * DENSE_LAYERS)
            outputs = read[-1]
        elif block.kind == "residual":
            total += area * outputs * (2 * kept + 2 + network.batch_norm)
        else:
            total += area * outputs * kept
        largest = max(largest, area * outputs)
        if block.kind == "transition":
            area //= 4
    return Size(cnn_parameters(plan, network.output_size, network.batch_norm), total, largest)


def _transformer_size(network: Network) -> Size:
    width, tokens = network.width, network.input_size
    hidden = feed_forward(network)
    parameters = width * ((network.vocabulary or 1) + tokens + network.output_size) + network.output_size
    kept = 0.0
    for index, features in enumerate(hidden):
        parameters += 4 * width * width + 2 * width * features + 9 * width + features
        kept += tokens * ((8 if network.dropout is None else 10.5) * width + _kept_of_layer(network) * features)
        if network.architecture == "dense" and index:
            parameters += (index + 1) * width * width + width
            kept += tokens * (index + 2) * width
        elif network.architecture == "residual":
            kept += tokens * width / 2
    return Size(parameters, kept, tokens * max(*hidden, 3 * width))


# Below is a network as a job; nothing here imports a framework until the job is captured.


@dataclass(frozen=True)
class NetworkJob:
    network: Network

    def model(self) -> Any:
        from .modules import build

        return build(self.network)

    def batch(self, batch_size: int) -> Any:
        from .modules import example

        return example(self.network, batch_size)
