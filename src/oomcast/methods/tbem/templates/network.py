"""A network as data: layers by name, each with its kind, its arguments and the layers that it reads.

Nothing here knows a shape: what a layer gives for what it takes is the specification's matter. Trained parameters are
counted with its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..factors import Value
from ..specification import Shape, network_shapes

__all__ = ["Builder", "Input", "Layer", "Loss", "Network", "TypedParameters", "count_parameters"]

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


class TypedParameters:
    """A template's parameters, read with the type that each has."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def whole(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def real(self, name: str) -> float:
        value = self.values[name]
        assert not isinstance(value, str)
        return float(value)

    def text(self, name: str) -> str:
        value = self.values[name]
        assert isinstance(value, str)
        return value

    def flag(self, name: str) -> bool:
        value = self.values[name]
        assert isinstance(value, bool)
        return value


class Builder:
    """`at` says where the next layers belong; each method adds one and gives its name."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self._block = ""
        self._counts: dict[str, int] = {}

    def at(self, block: str) -> None:
        self._block = block

    def add(self, kind: str, *inputs: str, **arguments: Value) -> str:
        stem = f"{self._block}_{kind}"
        self._counts[stem] = self._counts.get(stem, 0) + 1
        name = f"{stem}{self._counts[stem]}"
        self.layers.append(Layer(name, kind, inputs, arguments, self._block))
        return name

    def conv(
        self, x: str, filters: int, kernel: int, stride: int = 1, padding: int | None = None, bias: bool = True
    ) -> str:
        """Padded by half the kernel, so that an odd kernel keeps the size, unless told otherwise."""
        around = kernel // 2 if padding is None else padding
        return self.add("conv", x, filters=filters, kernel=kernel, stride=stride, padding=around, bias=bias)

    def pool(self, x: str, how: str, kernel: int, stride: int, padding: int = 0) -> str:
        return self.add(f"{how}_pool", x, kernel=kernel, stride=stride, padding=padding)

    def linear(self, x: str, features: int, bias: bool = True) -> str:
        return self.add("linear", x, features=features, bias=bias)

    def normalize(self, x: str, how: str, groups: int = 8) -> str:
        """`how` is batch, group, layer, or none."""
        if how == "none":
            return x
        return self.add("group_norm", x, groups=groups) if how == "group" else self.add(f"{how}_norm", x)

    def activate(self, x: str, function: str) -> str:
        return self.add("activation", x, function=function)

    def drop(self, x: str, rate: float) -> str:
        return self.add("dropout", x, rate=rate) if rate > 0 else x


Arguments = Any


def count_parameters(network: Network, framework: str = "torch") -> int:
    """The trained parameters; batch norm's running averages are none.

    The frameworks agree but for one thing: LSTM and plain recurrent layers have two biases in torch and one in Keras.
    """
    shapes = network_shapes(network)
    return sum(_layer_count(layer, [shapes[name] for name in layer.inputs], framework) for layer in network.layers)


def _layer_count(layer: Layer, inputs: list[Shape], framework: str) -> int:
    if layer.kind == "recurrent":
        return _recurrent(inputs[0], layer.arguments, framework)
    counter = _COUNTERS.get(layer.kind)
    return counter(inputs[0], layer.arguments) if counter else 0


def _convolution(x: Shape, arguments: Arguments) -> int:
    kernel: int = arguments["kernel"] ** (len(x) - 2)
    filters: int = arguments["filters"]
    return x[1] * filters * kernel + (filters if arguments["bias"] else 0)


def _linear(x: Shape, arguments: Arguments) -> int:
    features: int = arguments["features"]
    return x[-1] * features + (features if arguments["bias"] else 0)


def _recurrent(x: Shape, arguments: Arguments, framework: str) -> int:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[arguments["cell"]]
    biases = (2 if framework == "torch" or arguments["cell"] == "gru" else 1) if arguments["bias"] else 0
    hidden: int = arguments["hidden"]
    directions, layers = (2 if arguments["bidirectional"] else 1), int(arguments["layers"])
    first = gates * hidden * (x[-1] + hidden + biases)
    further = gates * hidden * (directions * hidden + hidden + biases)
    return directions * (first + (layers - 1) * further)


_COUNTERS: dict[str, Callable[[Shape, Arguments], int]] = {
    "conv": _convolution,
    "conv_transpose": _convolution,
    "linear": _linear,
    "batch_norm": lambda x, _: 2 * x[1],
    "group_norm": lambda x, _: 2 * x[1],
    "layer_norm": lambda x, _: 2 * x[-1],
    "embedding": lambda _, arguments: int(arguments["rows"] * arguments["width"]),
    "positions": lambda x, _: x[1] * x[2],
    "attention": lambda x, _: 4 * x[-1] * (x[-1] + 1),
}
