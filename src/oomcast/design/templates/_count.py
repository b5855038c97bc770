"""How many trained parameters a network has, from its layers and their shapes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..spec import Shape, network_shapes
from ._network import Layer, Network

__all__ = ["count_parameters"]

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


def _convolution(x: Shape, given: Arguments) -> int:
    kernel: int = given["kernel"] ** (len(x) - 2)
    filters: int = given["filters"]
    return x[1] * filters * kernel + (filters if given["bias"] else 0)


def _linear(x: Shape, given: Arguments) -> int:
    features: int = given["features"]
    return x[-1] * features + (features if given["bias"] else 0)


def _recurrent(x: Shape, given: Arguments, framework: str) -> int:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[given["cell"]]
    biases = (2 if framework == "torch" or given["cell"] == "gru" else 1) if given["bias"] else 0
    hidden: int = given["hidden"]
    directions, layers = (2 if given["bidirectional"] else 1), int(given["layers"])
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
    "embedding": lambda _, given: int(given["rows"] * given["width"]),
    "positions": lambda x, _: x[1] * x[2],
    "attention": lambda x, _: 4 * x[-1] * (x[-1] + 1),
}
