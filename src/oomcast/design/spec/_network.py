"""A network held against the specification: the shape of each layer, or the first layer that cannot be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from oomcast.errors import BadInput, UnknownName

from ._library import layer_specifications
from ._process import Rejection

if TYPE_CHECKING:
    from ..templates._network import Layer, Network

__all__ = ["Shape", "check_network", "layer_shape", "network_shapes"]

Shape: TypeAlias = tuple[int, ...]
Case = dict[str, Any]
Arguments = Mapping[str, Any]


def check_network(network: Network) -> Rejection | None:
    """None if every layer can be, else the process and the condition that reject the first one that cannot."""
    found = _walk(network)
    return found if isinstance(found, Rejection) else None


def network_shapes(network: Network) -> dict[str, Shape]:
    """The shape of the input and of each layer's output, by name, with the batch; channels come first."""
    found = _walk(network)
    if isinstance(found, Rejection):
        raise BadInput(f"the network {network.name!r} cannot be built: {found}.")
    return found


def layer_shape(layer: Layer, inputs: Sequence[Shape]) -> Shape | Rejection:
    """The shape that one layer gives for its inputs' shapes."""
    if layer.kind not in _CASES:
        raise UnknownName("kind of layer", layer.kind, _CASES)
    process, case = _CASES[layer.kind]
    outputs = layer_specifications().process(process).run(case(list(inputs), layer.arguments))
    return outputs.at_layer(layer.name) if isinstance(outputs, Rejection) else tuple(outputs["y"])


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


def _windows(x: Shape, given: Arguments, *names: str) -> Case:
    """What slides over the sides of x: a layer gives one number for all of them."""
    rank = max(len(x) - 2, 1)
    return {"rank": rank, "x": x, **{name: (given[name],) * rank for name in names}}


def _convolution(xs: list[Shape], given: Arguments) -> Case:
    windows = _windows(xs[0], given, "kernel", "stride", "padding")
    rank, channels = windows["rank"], xs[0][1]
    return {
        **windows,
        "in_channels": channels,
        "out_channels": given["filters"],
        "dilation": (1,) * rank,
        "groups": 1,
        "mode": "explicit",
    }


def _transposed_convolution(xs: list[Shape], given: Arguments) -> Case:
    windows = _windows(xs[0], given, "kernel", "stride")
    rank, channels = windows["rank"], xs[0][1]
    return {
        **windows,
        "in_channels": channels,
        "out_channels": given["filters"],
        "padding": (0,) * rank,
        "output_padding": (0,) * rank,
        "dilation": (1,) * rank,
        "groups": 1,
    }


def _max_pooling(xs: list[Shape], given: Arguments) -> Case:
    windows = _windows(xs[0], given, "kernel", "stride", "padding")
    return {**windows, "dilation": (1,) * windows["rank"], "ceil_mode": False}


def _average_pooling(xs: list[Shape], given: Arguments) -> Case:
    return {**_windows(xs[0], given, "kernel", "stride", "padding"), "ceil_mode": False}


def _global_pooling(xs: list[Shape], given: Arguments) -> Case:
    windows = _windows(xs[0], given)
    return {**windows, "how": given["how"], "size": (1,) * windows["rank"]}


def _linear(xs: list[Shape], given: Arguments) -> Case:
    return {"x": xs[0], "in_features": xs[0][-1], "out_features": given["features"]}


def _batch_norm(xs: list[Shape], given: Arguments) -> Case:
    rank = max(len(xs[0]) - 2, 1)
    return {"rank": rank, "x": xs[0], "features": xs[0][1], "training": True}


def _recurrent(xs: list[Shape], given: Arguments) -> Case:
    own = {name: given[name] for name in ("cell", "hidden", "layers", "bidirectional", "dropout")}
    return {**own, "x": xs[0], "in_features": xs[0][-1], "batch_first": True, "projection": 0}


def _attention(xs: list[Shape], given: Arguments) -> Case:
    x = xs[0]
    return {"query": x, "key": x, "value": x, "width": x[-1], "heads": given["heads"], "batch_first": True}


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
        lambda xs, given: {"x": xs[0], "groups": given["groups"], "channels": xs[0][1]},
    ),
    "activation": ("Activation", lambda xs, _: {"x": xs[0]}),
    "dropout": ("Dropout", lambda xs, given: {"x": xs[0], "rate": given["rate"]}),
    "flatten": ("Flatten", lambda xs, _: {"x": xs[0], "first": 1, "last_dimension": -1}),
    "add": ("Addition", lambda xs, _: {"xs": tuple(xs)}),
    "concatenate": ("Concatenation", lambda xs, _: {"xs": tuple(xs), "axis": 1}),
    "pad_like": ("PaddingLike", lambda xs, _: {"x": xs[0], "like": xs[1]}),
    "embedding": (
        "Embedding",
        lambda xs, given: {
            "x": xs[0],
            "rows": given["rows"],
            "width": given["width"],
            "padded": False,
            "padding_index": 0,
        },
    ),
    "positions": ("Positions", lambda xs, given: {"x": xs[0], "length": given["length"]}),
    "attention": ("Attention", _attention),
    "mean": ("MeanOverPositions", lambda xs, _: {"x": xs[0]}),
    "recurrent": ("Recurrent", _recurrent),
}
