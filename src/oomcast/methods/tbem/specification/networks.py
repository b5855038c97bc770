"""A network held against the specification: the shape of each layer, or the first layer that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from oomcast.errors import BadInput, UnknownName

from .library import layer_specifications
from .process import Process, Rejection

if TYPE_CHECKING:
    from ..templates import Layer, Network

__all__ = ["Rules", "Shape", "check_network", "layer_shape", "network_shapes"]

Shape: TypeAlias = tuple[int, ...]
Case = dict[str, Any]
Arguments = Mapping[str, Any]


def check_network(network: Network) -> Rejection | None:
    """None if every layer can be, else the process and the condition that reject the first one that cannot."""
    walked = _walk(network)
    return walked if isinstance(walked, Rejection) else None


def network_shapes(network: Network) -> dict[str, Shape]:
    """The shape of the input and of each layer's output, by name, with the batch; channels come first."""
    walked = _walk(network)
    if isinstance(walked, Rejection):
        raise BadInput(f"the network {network.name!r} cannot be built: {walked}.")
    return walked


def layer_shape(layer: Layer, inputs: Sequence[Shape]) -> Shape | Rejection:
    """The shape that one layer gives for its inputs' shapes."""
    if layer.kind not in _CASES:
        raise UnknownName("kind of layer", layer.kind, _CASES)
    process, case = _CASES[layer.kind]
    outputs = layer_specifications().process(process).run(case(list(inputs), layer.arguments))
    return outputs.at_layer(layer.name) if isinstance(outputs, Rejection) else tuple(outputs["y"])


@dataclass(frozen=True)
class Rules:
    """What a campaign asks of its cases beyond oomcast's own specification: processes of files of its own.

    A process is given what it names: of a case its parameters; of a layer what oomcast's own process for that kind of
    layer is given and, with two-dimensional windows, the letters of the TBEM paper's listing 1 (W1, H1, D1 for the
    input, W2, H2, D2 for the output, K, F, S, P).
    """

    layers: Mapping[str, Process] = field(default_factory=dict)
    """Kind of layer → its process."""
    case: Process | None = None

    def __post_init__(self) -> None:
        for kind in self.layers:
            if kind not in _CASES:
                raise UnknownName("kind of layer", kind, _CASES, f"There are {', '.join(_CASES)}.")

    def check_parameters(self, parameters: Mapping[str, Any]) -> Rejection | None:
        return self.case.check(_taken(self.case, parameters, "a case")) if self.case is not None else None

    def check_network(self, network: Network) -> Rejection | None:
        shapes = network_shapes(network)
        for layer in network.layers:
            process = self.layers.get(layer.kind)
            if process is None:
                continue
            facts = _facts(layer, [shapes[name] for name in layer.inputs], shapes[layer.name])
            rejection = process.check(_taken(process, facts, f"a layer of kind {layer.kind!r}"))
            if rejection is not None:
                return rejection.at_layer(layer.name)
        return None


def _taken(process: Process, facts: Mapping[str, Any], what: str) -> Case:
    for name, _ in process.inputs:
        if name not in facts:
            raise UnknownName(f"input of {process.name} for {what},", name, facts, f"It has {', '.join(facts)}.")
    return {name: facts[name] for name, _ in process.inputs}


def _facts(layer: Layer, inputs: list[Shape], output: Shape) -> Case:
    facts = {**layer.arguments, **_CASES[layer.kind][1](inputs, layer.arguments)}
    x = inputs[0]
    if len(x) == 4 and "kernel" in layer.arguments:
        facts |= {"D1": x[1], "H1": x[2], "W1": x[3], "D2": output[1], "H2": output[2], "W2": output[3]}
        facts |= {"K": layer.arguments.get("filters", output[1]), "F": layer.arguments["kernel"]}
        facts |= {"S": layer.arguments["stride"], "P": layer.arguments.get("padding", 0)}
    return facts


def _walk(network: Network) -> dict[str, Shape] | Rejection:
    shapes: dict[str, Shape] = {network.input.name: (network.batch_size, *network.input.shape)}
    for layer in network.layers:
        unknown = next((name for name in layer.inputs if name not in shapes), None)
        if unknown is not None:
            raise UnknownName(f"input of layer {layer.name!r}", unknown, shapes, "A layer's inputs come before it.")
        if layer.name in shapes:
            raise BadInput(f"two layers are called {layer.name!r}; give each its own name.")
        shape = layer_shape(layer, [shapes[name] for name in layer.inputs])
        if isinstance(shape, Rejection):
            return shape
        shapes[layer.name] = shape
    return shapes


def _windows(x: Shape, arguments: Arguments, *names: str) -> Case:
    """What slides over the sides of x: a layer gives one number for all of them."""
    rank = max(len(x) - 2, 1)
    return {"rank": rank, "x": x, **{name: (arguments[name],) * rank for name in names}}


def _convolution(xs: list[Shape], arguments: Arguments) -> Case:
    windows = _windows(xs[0], arguments, "kernel", "stride", "padding")
    rank, channels = windows["rank"], xs[0][1]
    return {
        **windows,
        "in_channels": channels,
        "out_channels": arguments["filters"],
        "dilation": (1,) * rank,
        "groups": 1,
        "mode": "explicit",
    }


def _transposed_convolution(xs: list[Shape], arguments: Arguments) -> Case:
    windows = _windows(xs[0], arguments, "kernel", "stride")
    rank, channels = windows["rank"], xs[0][1]
    return {
        **windows,
        "in_channels": channels,
        "out_channels": arguments["filters"],
        "padding": (0,) * rank,
        "output_padding": (0,) * rank,
        "dilation": (1,) * rank,
        "groups": 1,
    }


def _max_pooling(xs: list[Shape], arguments: Arguments) -> Case:
    windows = _windows(xs[0], arguments, "kernel", "stride", "padding")
    return {**windows, "dilation": (1,) * windows["rank"], "ceil_mode": False}


def _average_pooling(xs: list[Shape], arguments: Arguments) -> Case:
    return {**_windows(xs[0], arguments, "kernel", "stride", "padding"), "ceil_mode": False}


def _global_pooling(xs: list[Shape], arguments: Arguments) -> Case:
    windows = _windows(xs[0], arguments)
    return {**windows, "how": arguments["how"], "size": (1,) * windows["rank"]}


def _linear(xs: list[Shape], arguments: Arguments) -> Case:
    return {"x": xs[0], "in_features": xs[0][-1], "out_features": arguments["features"]}


def _batch_norm(xs: list[Shape], arguments: Arguments) -> Case:
    rank = max(len(xs[0]) - 2, 1)
    return {"rank": rank, "x": xs[0], "features": xs[0][1], "training": True}


def _recurrent(xs: list[Shape], arguments: Arguments) -> Case:
    own = {name: arguments[name] for name in ("cell", "hidden", "layers", "bidirectional", "dropout")}
    return {**own, "x": xs[0], "in_features": xs[0][-1], "batch_first": True, "projection": 0}


def _attention(xs: list[Shape], arguments: Arguments) -> Case:
    x = xs[0]
    return {"query": x, "key": x, "value": x, "width": x[-1], "heads": arguments["heads"], "batch_first": True}


_CASES: dict[str, tuple[str, Callable[[list[Shape], Arguments], Case]]] = {
    "conv": ("Convolution", _convolution),
    "conv_transpose": ("TransposedConvolution", _transposed_convolution),
    "max_pool": ("MaxPooling", _max_pooling),
    "average_pool": ("AveragePooling", _average_pooling),
    "global_pool": ("AdaptivePooling", _global_pooling),
    "linear": ("Linear", _linear),
    "batch_norm": ("BatchNormalization", _batch_norm),
    "layer_norm": ("LayerNormalization", lambda xs, _: {"x": xs[0], "normalized": xs[0][-1:]}),
    "group_norm": (
        "GroupNormalization",
        lambda xs, arguments: {"x": xs[0], "groups": arguments["groups"], "channels": xs[0][1]},
    ),
    "activation": ("Activation", lambda xs, _: {"x": xs[0]}),
    "dropout": ("Dropout", lambda xs, arguments: {"x": xs[0], "rate": arguments["rate"]}),
    "flatten": ("Flatten", lambda xs, _: {"x": xs[0], "first": 1, "last_dimension": -1}),
    "add": ("Addition", lambda xs, _: {"xs": tuple(xs)}),
    "concatenate": ("Concatenation", lambda xs, _: {"xs": tuple(xs), "axis": 1}),
    "pad_like": ("PaddingLike", lambda xs, _: {"x": xs[0], "like": xs[1]}),
    "embedding": (
        "Embedding",
        lambda xs, arguments: {
            "x": xs[0],
            "rows": arguments["rows"],
            "width": arguments["width"],
            "padded": False,
            "padding_index": 0,
        },
    ),
    "positions": ("Positions", lambda xs, arguments: {"x": xs[0], "length": arguments["length"]}),
    "attention": ("Attention", _attention),
    "mean": ("MeanOverPositions", lambda xs, _: {"x": xs[0]}),
    "recurrent": ("Recurrent", _recurrent),
}
