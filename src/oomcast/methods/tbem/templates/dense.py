"""Networks without convolutions: MLP, LSTM and Transformer."""

from __future__ import annotations

from .network import Builder, Input, Network, TypedParameters
from .template import NetworkTemplate, activation, batch_size, choice, dropout, flag, optimizer, whole

__all__ = ["LSTM", "MLP", "TRANSFORMER"]


def _mlp(parameters: TypedParameters) -> Network:
    builder = Builder()
    builder.at("hidden")
    depth, norm = parameters.whole("depth"), parameters.text("norm")
    x = "x"
    for width in _mlp_widths(parameters.text("shape"), depth - 1, parameters.whole("width")):
        x = builder.normalize(builder.linear(x, width, parameters.flag("bias")), norm)
        x = builder.drop(builder.activate(x, parameters.text("activation")), parameters.real("dropout"))
    builder.at("head")
    builder.linear(x, parameters.whole("classes"), parameters.flag("bias"))
    return Network(
        "mlp",
        f"A multilayer perceptron of {depth} fully connected layers",
        parameters.whole("batch_size"),
        Input((parameters.whole("features"),)),
        tuple(builder.layers),
        "classes",
        parameters.whole("classes"),
        parameters.text("optimizer"),
    )


def _mlp_widths(shape: str, hidden: int, width: int) -> list[int]:
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
    _mlp,
)


def _lstm(parameters: TypedParameters) -> Network:
    builder = Builder()
    rate, vocabulary = parameters.real("dropout"), parameters.whole("vocabulary")
    builder.at("tokens")
    x = builder.drop(builder.add("embedding", "x", rows=vocabulary, width=parameters.whole("width")), rate)
    builder.at("recurrent")
    x = builder.add(
        "recurrent",
        x,
        cell=parameters.text("cell"),
        hidden=parameters.whole("hidden"),
        layers=parameters.whole("depth"),
        bidirectional=parameters.flag("bidirectional"),
        dropout=rate if parameters.whole("depth") > 1 else 0.0,
        bias=parameters.flag("bias"),
    )
    builder.at("head")
    builder.linear(builder.drop(x, rate), vocabulary)
    cell = {"lstm": "LSTM", "gru": "GRU", "rnn": "plain recurrent"}[parameters.text("cell")]
    return Network(
        "lstm",
        f"A language model of {parameters.whole('depth')} {cell} layers, {parameters.whole('hidden')} wide",
        parameters.whole("batch_size"),
        Input((parameters.whole("length"),), vocabulary=vocabulary),
        tuple(builder.layers),
        "tokens",
        vocabulary,
        parameters.text("optimizer"),
    )


LSTM = NetworkTemplate(
    "lstm",
    (
        batch_size(20),
        whole("length", 35, 1, 65_536, "tokens in a text"),
        whole("vocabulary", 10_000, 2, 1_000_000, "different tokens"),
        whole("width", 650, 1, 32_768, "width of a token's vector"),
        whole("hidden", 650, 1, 32_768, "width of the recurrent layers"),
        whole("depth", 2, 1, 64, "recurrent layers"),
        choice("cell", "lstm", ("lstm", "gru", "rnn"), "the kind of recurrent layer"),
        flag("bidirectional", False, "whether a second cell reads each text from its end"),
        flag("bias", True, "whether recurrent layers have biases"),
        dropout(0.5, "between layers"),
        optimizer("sgd"),
    ),
    _lstm,
)


def _transformer(parameters: TypedParameters) -> Network:
    builder = Builder()
    rate, length = parameters.real("dropout"), parameters.whole("length")
    builder.at("tokens")
    x = builder.add("embedding", "x", rows=parameters.whole("vocabulary"), width=parameters.whole("width"))
    builder.at("positions")
    x = builder.add("positions", x, length=length)
    builder.at("dropout")
    x = builder.drop(x, rate)
    before = parameters.text("norm") == "before"
    for number in range(1, parameters.whole("depth") + 1):
        x = _transformer_attention(builder, parameters, x, f"block{number}", before)
        x = _transformer_feed(builder, parameters, x, f"block{number}_feed", before)
    builder.at("norm")
    x = builder.normalize(x, "layer") if before else x
    builder.at("head")
    x = builder.add("mean", x)
    builder.linear(x, parameters.whole("classes"))
    return Network(
        "transformer",
        f"A Transformer encoder of {parameters.whole('depth')} blocks, {parameters.whole('width')} wide, "
        f"on {length} tokens",
        parameters.whole("batch_size"),
        Input((length,), vocabulary=parameters.whole("vocabulary")),
        tuple(builder.layers),
        "classes",
        parameters.whole("classes"),
        parameters.text("optimizer"),
    )


def _transformer_attention(builder: Builder, parameters: TypedParameters, x: str, block: str, before: bool) -> str:
    rate = parameters.real("dropout")
    builder.at(f"{block}_norm")
    y = builder.normalize(x, "layer") if before else x
    builder.at(f"{block}_attention")
    y = builder.add("attention", y, heads=parameters.whole("heads"), dropout=rate)
    builder.at(f"{block}_dropout")
    y = builder.add("add", x, builder.drop(y, rate))
    builder.at(f"{block}_norm")
    return y if before else builder.normalize(y, "layer")


def _transformer_feed(builder: Builder, parameters: TypedParameters, x: str, block: str, before: bool) -> str:
    builder.at(block)
    rate = parameters.real("dropout")
    y = builder.normalize(x, "layer") if before else x
    y = builder.linear(y, parameters.whole("width") * parameters.whole("feed_factor"))
    y = builder.drop(builder.activate(y, parameters.text("activation")), rate)
    y = builder.drop(builder.linear(y, parameters.whole("width")), rate)
    builder.at(f"{block}_norm")
    y = builder.add("add", x, y)
    return y if before else builder.normalize(y, "layer")


TRANSFORMER = NetworkTemplate(
    "transformer",
    (
        batch_size(16),
        whole("length", 128, 1, 65_536, "tokens in a text"),
        whole("vocabulary", 30_522, 1, 1_000_000, "different tokens"),
        whole("width", 512, 1, 32_768, "width of the model"),
        whole("depth", 6, 1, 200, "blocks of attention and feed-forward layers"),
        whole("heads", 8, 1, 256, "heads of attention, among which the width is divided"),
        whole("feed_factor", 4, 1, 16, "how many times wider the feed-forward layers are"),
        choice("norm", "before", ("before", "after"), "where layer norm stands in a block"),
        activation("gelu"),
        dropout(0.1, "in the blocks"),
        whole("classes", 2, 2, 100_000, "classes to tell apart"),
        optimizer("adamw"),
    ),
    _transformer,
)
