"""A multilayer perceptron on rows of numbers."""

from __future__ import annotations

from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import NetworkTemplate, activation, batch_size, choice, dropout, flag, optimizer, whole

__all__ = ["MLP"]


def _build(given: Given) -> Network:
    builder = Builder()
    builder.at("hidden")
    depth, norm = given.whole("depth"), given.text("norm")
    x = "x"
    for width in _widths(given.text("shape"), depth - 1, given.whole("width")):
        x = builder.normalize(builder.linear(x, width, given.flag("bias")), norm)
        x = builder.drop(builder.activate(x, given.text("activation")), given.real("dropout"))
    builder.at("head")
    builder.linear(x, given.whole("classes"), given.flag("bias"))
    return Network(
        "mlp",
        f"A multilayer perceptron of {depth} fully connected layers",
        given.whole("batch_size"),
        Input((given.whole("features"),)),
        tuple(builder.layers),
        "classes",
        given.whole("classes"),
        given.text("optimizer"),
    )


def _widths(shape: str, hidden: int, width: int) -> list[int]:
    """The width of each hidden layer: all alike, halved from layer to layer, or halved to the middle and back."""
    if shape == "uniform":
        halvings = [0] * hidden
    elif shape == "pyramid":
        halvings = list(range(hidden))
    else:
        halvings = [min(layer, hidden - 1 - layer) for layer in range(hidden)]
    return [max(1, width >> times) for times in halvings]


MLP = NetworkTemplate(
    "mlp",
    (
        batch_size(128),
        whole("features", 784, 1, 1_000_000, "numbers in a row"),
        whole("depth", 4, 1, 500, "fully connected layers"),
        whole("width", 1024, 1, 1_000_000, "width of the hidden layers, or of the widest"),
        choice("shape", "uniform", ("uniform", "pyramid", "hourglass"), "how the widths go from layer to layer"),
        choice("norm", "none", ("none", "batch", "layer"), "normalization in each hidden layer"),
        activation("relu"),
        dropout(0.0, "after each hidden layer"),
        flag("bias", True, "whether layers have a bias"),
        whole("classes", 10, 2, 100_000, "classes to tell apart"),
        optimizer("adam"),
    ),
    _build,
)
