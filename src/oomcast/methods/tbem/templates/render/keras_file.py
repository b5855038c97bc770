"""A network as a Keras 3 file for TensorFlow, with the channels last, as TensorFlow has them on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...specification import Shape, network_shapes
from ..network import Layer, Network
from .source import Step, argument, call, docstring, resolved, variables

__all__ = ["render_keras"]

_FUNCTIONS = {
    "relu": ("layers.ReLU", []),
    "leaky_relu": ("layers.LeakyReLU", ["negative_slope=0.01"]),
    "elu": ("layers.ELU", []),
    "gelu": ("layers.Activation", ['"gelu"']),
    "silu": ("layers.Activation", ['"silu"']),
    "tanh": ("layers.Activation", ['"tanh"']),
}
_OPTIMIZERS = {
    "sgd": "keras.optimizers.SGD(learning_rate=0.01)",
    "momentum": "keras.optimizers.SGD(learning_rate=0.01, momentum=0.9)",
    "adam": "keras.optimizers.Adam(learning_rate=1e-3)",
    "adamw": "keras.optimizers.AdamW(learning_rate=1e-3, weight_decay=0.01)",
    "rmsprop": "keras.optimizers.RMSprop(learning_rate=1e-3)",
}
_USAGE = "Run it to train for a few steps, with Keras 3 on TensorFlow. Channels come last here."
_POSITIONS = '''\
class Positions(layers.Layer):
    """Adds a learned vector to each position of a sequence."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.vectors = self.add_weight(shape=shape[1:], name="vectors")

    def call(self, x):
        return x + self.vectors'''
_TRAIN = '''\
def train() -> None:
    """Train on random data: memory does not depend on what the numbers are."""
    if DEVICE == "cpu":
        # Grappler rewrites a graph otherwise in every process, and its peak differs by up to a tenth.
        # On a GPU it also decides the layout of convolutions: there it stays.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    with keras.device(DEVICE):
        network = model()
        for _ in range(STEPS):
            network.train_on_batch(*batch(BATCH_SIZE))'''

Call = tuple[str, list[str]]


def render_keras(network: Network, steps: int, device: str) -> str:
    shapes = network_shapes(network)
    layers = resolved(network, shapes)
    names = variables(network.input.name, [Step(layer.inputs, layer.name, layer.block) for layer in layers], far=12)
    sections = [
        docstring(network, "keras", shapes, _USAGE),
        "import keras\nimport numpy as np\nimport tensorflow as tf\nfrom keras import layers",
        f'BATCH_SIZE = {network.batch_size}\nSTEPS = {steps}\nDEVICE = "{"gpu" if device == "cuda" else "cpu"}"',
    ]
    functions = [
        "\n".join(_error(network)),
        "\n".join(_model(network, layers, names, shapes)),
        "\n".join(_batch(network)),
        _TRAIN,
        'if __name__ == "__main__":\n    train()',
    ]
    if any(layer.kind == "positions" for layer in layers):
        functions.insert(0, _POSITIONS)
    return "\n\n".join(sections) + "\n\n\n" + "\n\n\n".join(functions) + "\n"


def _model(network: Network, layers: tuple[Layer, ...], names: dict[str, str], shapes: dict[str, Shape]) -> list[str]:
    dtype = ['dtype="int32"'] if network.input.vocabulary else []
    lines = [
        "def model() -> keras.Model:",
        *call("inputs = keras.Input", [_last(network.input.shape), *dtype], indent=4),
    ]
    lines.append("    x = inputs")
    block = ""
    for layer in layers:
        if layer.block != block:
            block = layer.block
            lines += ["", f"    # {block.replace('_', ' ')}"]
        target, inputs = names[layer.name], [names[name] for name in layer.inputs]
        x, y = shapes[layer.inputs[0]], shapes[layer.name]
        for (name, arguments), applied in _calls(layer, x, y, inputs, target):
            lines += call(f"{target} = {name}", arguments, f"({applied})", indent=4)
    return [
        *lines,
        "",
        f'    network = keras.Model(inputs, {names[layers[-1].name]}, name="{network.name}")',
        "    # TensorFlow's own kernels: XLA would add its compiler's memory to the network's.",
        f"    trainer = {_OPTIMIZERS[network.optimizer]}",
        "    network.compile(optimizer=trainer, loss=error, jit_compile=False)",
        "    return network",
    ]


def _calls(layer: Layer, x: Shape, y: Shape, inputs: list[str], target: str) -> list[tuple[Call, str]]:
    """The Keras layers that one layer of the network is, each with what it is applied to."""
    arguments: Any = layer.arguments
    if layer.kind in ("add", "concatenate"):
        return [((f"layers.{layer.kind.capitalize()}", []), f"[{', '.join(inputs)}]")]
    if layer.kind == "attention":
        return [((_attention(x, arguments)), f"{inputs[0]}, {inputs[0]}")]
    if layer.kind == "recurrent":
        stack = _recurrent(arguments)
    elif layer.kind in ("conv", "max_pool", "average_pool"):
        stack = _windows(layer, x, y)
    else:
        stack = [_LAYERS[layer.kind](x, y, arguments)]
    return [(built, inputs[0] if number == 0 else target) for number, built in enumerate(stack)]


def _rank(x: Shape) -> int:
    return len(x) - 2


def _last(shape: Shape) -> str:
    """A sample's shape with the channels last, as text."""
    moved = (*shape[1:], shape[0]) if len(shape) > 1 else shape
    return f"({', '.join(map(str, moved))}{',' if len(moved) == 1 else ''})"


def _windows(layer: Layer, x: Shape, y: Shape) -> list[Call]:
    """A convolution or pooling: padded as "same" where that gives the same size, else by a layer of its own."""
    arguments: Any = layer.arguments
    stride, padding = arguments["stride"], arguments["padding"]
    before: list[Call] = []
    how = []
    if padding and all(after == -(-size // stride) for size, after in zip(x[2:], y[2:], strict=True)):
        how = ['padding="same"']
    elif padding:
        before = [(f"layers.ZeroPadding{_rank(x)}D", [str(padding)])]
    if layer.kind == "conv":
        bias = argument("use_bias", arguments["bias"], True)
        sizes = [str(arguments["filters"]), str(arguments["kernel"]), *argument("strides", stride, 1)]
        return [*before, (f"layers.Conv{_rank(x)}D", [*sizes, *how, *bias])]
    kind = "Max" if layer.kind == "max_pool" else "Average"
    return [*before, (f"layers.{kind}Pooling{_rank(x)}D", [str(arguments["kernel"]), f"strides={stride}", *how])]


def _pad(x: Shape, y: Shape, _: Any) -> Call:
    amounts = [f"(0, {wanted - have})" for wanted, have in zip(y[2:], x[2:], strict=True)]
    return f"layers.ZeroPadding{_rank(x)}D", [f"({', '.join(amounts)})"]


def _attention(x: Shape, arguments: Any) -> Call:
    sizes = [str(arguments["heads"]), f"key_dim={x[-1] // arguments['heads']}"]
    return "layers.MultiHeadAttention", [*sizes, *argument("dropout", arguments["dropout"], 0.0)]


def _recurrent(given: Any) -> list[Call]:
    name = {"lstm": "layers.LSTM", "gru": "layers.GRU", "rnn": "layers.SimpleRNN"}[given["cell"]]
    arguments = [str(given["hidden"]), *argument("use_bias", given["bias"], True), "return_sequences=True"]
    cell: Call = (name, arguments)
    if given["bidirectional"]:
        cell = ("layers.Bidirectional", [f"{name}({', '.join(arguments)})"])
    between: list[Call] = [("layers.Dropout", [str(given["dropout"])])] if given["dropout"] else []
    return [cell, *[built for _ in range(given["layers"] - 1) for built in (*between, cell)]]


_LAYERS: dict[str, Callable[[Shape, Shape, Any], Call]] = {
    "conv_transpose": lambda x, _, arguments: (
        f"layers.Conv{_rank(x)}DTranspose",
        [
            str(arguments["filters"]),
            str(arguments["kernel"]),
            f"strides={arguments['stride']}",
            *argument("use_bias", arguments["bias"], True),
        ],
    ),
    "global_pool": lambda x, _, arguments: (
        f"layers.Global{arguments['how'].capitalize()}Pooling{_rank(x)}D",
        ["keepdims=True"],
    ),
    "linear": lambda _x, _y, arguments: (
        "layers.Dense",
        [str(arguments["features"]), *argument("use_bias", arguments["bias"], True)],
    ),
    "batch_norm": lambda _x, _y, _: ("layers.BatchNormalization", ["momentum=0.9", "epsilon=1e-5"]),
    "group_norm": lambda _x, _y, arguments: ("layers.GroupNormalization", [str(arguments["groups"]), "epsilon=1e-5"]),
    "layer_norm": lambda _x, _y, _: ("layers.LayerNormalization", ["epsilon=1e-5"]),
    "activation": lambda _x, _y, arguments: _FUNCTIONS[arguments["function"]],
    "dropout": lambda _x, _y, arguments: ("layers.Dropout", [str(arguments["rate"])]),
    "flatten": lambda _x, _y, _: ("layers.Flatten", []),
    "pad_like": _pad,
    "embedding": lambda _x, _y, arguments: ("layers.Embedding", [str(arguments["rows"]), str(arguments["width"])]),
    "positions": lambda _x, _y, _: ("Positions", []),
    "mean": lambda _x, _y, _: ("layers.GlobalAveragePooling1D", []),
}


def _batch(network: Network) -> list[str]:
    sample = _last(network.input.shape)[1:-1].rstrip(",")
    points = ", ".join(map(str, network.input.shape[1:]))
    if network.input.vocabulary:
        inputs = f'random.integers({network.input.vocabulary}, size=(batch_size, {sample}), dtype="int32")'
    else:
        inputs = f'random.standard_normal((batch_size, {sample}), dtype="float32")'
    shapes = {"classes": "(batch_size,)", "tokens": f"(batch_size, {sample})"}
    shapes |= {"pixels": f"(batch_size, {points})", "dice": f"(batch_size, {points}, 1)"}
    high, dtype = (2, "float32") if network.loss == "dice" else (network.classes, "int32")
    targets = f'random.integers({high}, size={shapes[network.loss]}).astype("{dtype}")'
    return [
        "def batch(batch_size: int) -> tuple[np.ndarray, np.ndarray]:",
        "    random = np.random.default_rng()",
        f"    inputs = {inputs}",
        f"    targets = {targets}",
        "    return inputs, targets",
    ]


def _error(network: Network) -> list[str]:
    """Not called `loss`: in a job file that is a function of model and batch; Keras compiles its own into a model."""
    if network.loss == "dice":
        return [
            "def error(targets, outputs):",
            "    axes = tuple(range(1, len(outputs.shape)))",
            "    mask = keras.ops.sigmoid(outputs)",
            "    overlap = keras.ops.sum(mask * targets, axes)",
            "    total = keras.ops.sum(mask, axes) + keras.ops.sum(targets, axes)",
            "    return 1 - (2 * overlap + 1) / (total + 1)",
        ]
    return [
        "def error(targets, outputs):",
        "    cross_entropy = keras.losses.sparse_categorical_crossentropy",
        "    return cross_entropy(targets, outputs, from_logits=True)",
    ]
