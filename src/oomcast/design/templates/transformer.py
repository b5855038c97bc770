"""A Transformer encoder that puts texts into classes."""

from __future__ import annotations

from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import NetworkTemplate, activation, batch_size, choice, dropout, optimizer, whole

__all__ = ["TRANSFORMER"]


def _build(given: Given) -> Network:
    builder = Builder()
    rate, length = given.real("dropout"), given.whole("length")
    builder.at("tokens")
    x = builder.add("embedding", "x", rows=given.whole("vocabulary"), width=given.whole("width"))
    builder.at("positions")
    x = builder.add("positions", x, length=length)
    builder.at("dropout")
    x = builder.drop(x, rate)
    before = given.text("norm") == "before"
    for number in range(1, given.whole("depth") + 1):
        x = _attend(builder, given, x, f"block{number}", before)
        x = _feed(builder, given, x, f"block{number}_feed", before)
    builder.at("norm")
    x = builder.normalize(x, "layer") if before else x
    builder.at("head")
    x = builder.add("mean", x)
    builder.linear(x, given.whole("classes"))
    return Network(
        "transformer",
        f"A Transformer encoder of {given.whole('depth')} blocks, {given.whole('width')} wide, on {length} tokens",
        given.whole("batch_size"),
        Input((length,), vocabulary=given.whole("vocabulary")),
        tuple(builder.layers),
        "classes",
        given.whole("classes"),
        given.text("optimizer"),
    )


def _attend(builder: Builder, given: Given, x: str, block: str, before: bool) -> str:
    rate = given.real("dropout")
    builder.at(f"{block}_norm")
    y = builder.normalize(x, "layer") if before else x
    builder.at(f"{block}_attention")
    y = builder.add("attention", y, heads=given.whole("heads"), dropout=rate)
    builder.at(f"{block}_dropout")
    y = builder.add("add", x, builder.drop(y, rate))
    builder.at(f"{block}_norm")
    return y if before else builder.normalize(y, "layer")


def _feed(builder: Builder, given: Given, x: str, block: str, before: bool) -> str:
    builder.at(block)
    rate = given.real("dropout")
    y = builder.normalize(x, "layer") if before else x
    y = builder.linear(y, given.whole("width") * given.whole("feed_factor"))
    y = builder.drop(builder.activate(y, given.text("activation")), rate)
    y = builder.drop(builder.linear(y, given.whole("width")), rate)
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
    _build,
)
