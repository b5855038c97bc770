"""ResNet: four stages of residual blocks, basic (two convolutions) or bottleneck (three)."""

from __future__ import annotations

from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import (
    NetworkTemplate,
    activation,
    batch_size,
    choice,
    deformations,
    optimizer,
    real,
    whole,
)

__all__ = ["RESNET"]

_STAGES = 4
_KNOWN = {8: (2, 2, 2, 2), 16: (3, 4, 6, 3), 33: (3, 4, 23, 3), 50: (3, 8, 36, 3)}
"""ResNet-18, 34 and 50, 101, 152: their blocks in each stage."""


def _build(given: Given) -> Network:
    builder = Builder()
    x = _stem(builder, given)
    filters = [_filters(given, stage) for stage in range(_STAGES)]
    width = _stem_filters(given)
    blocks = given.whole("blocks")
    for stage, many in enumerate(_spread(blocks)):
        for block in range(many + given.whole(f"stage{stage + 1}_extra")):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _block(builder, given, x, (stage + 1, block + 1), filters[stage], stride, width)
            width = filters[stage] * (4 if given.text("block") == "bottleneck" else 1)
    builder.at("head")
    x = builder.add("flatten", builder.add("global_pool", x, how="average"))
    builder.linear(x, given.whole("classes"))
    depth = blocks * (3 if given.text("block") == "bottleneck" else 2) + 2
    return Network(
        "resnet",
        f"ResNet-{depth}: {blocks} {given.text('block')} blocks in {_STAGES} stages",
        given.whole("batch_size"),
        Input((given.whole("channels"), given.whole("edge"), given.whole("edge"))),
        tuple(builder.layers),
        "classes",
        given.whole("classes"),
        given.text("optimizer"),
    )


def _spread(blocks: int) -> tuple[int, ...]:
    """Blocks in each stage: as published where there is such a ResNet, else evenly, the third stage first."""
    if blocks in _KNOWN:
        return _KNOWN[blocks]
    order = (2, 1, 3, 0)
    return tuple(blocks // _STAGES + (order.index(stage) < blocks % _STAGES) for stage in range(_STAGES))


def _stem_filters(given: Given) -> int:
    return max(1, round(64 * given.real("width")))


def _filters(given: Given, stage: int) -> int:
    return max(1, round((64 << stage) * given.real("width") * given.real(f"stage{stage + 1}_width")))


def _stem(builder: Builder, given: Given) -> str:
    builder.at("stem")
    if given.text("stem") == "image":
        x = builder.conv("x", _stem_filters(given), 7, stride=2, bias=False)
    else:
        x = builder.conv("x", _stem_filters(given), 3, bias=False)
    x = builder.activate(builder.normalize(x, given.text("norm")), given.text("activation"))
    return builder.pool(x, given.text("pool"), 3, 2, 1) if given.text("stem") == "image" else x


def _block(
    builder: Builder, given: Given, x: str, place: tuple[int, int], filters: int, stride: int, incoming: int
) -> str:
    """The way through the convolutions, and the one past them, with a convolution where the shapes differ."""
    stage, block = place
    kernel = given.whole(f"stage{stage}_kernel") or given.whole("kernel")
    norm, function = given.text("norm"), given.text("activation")
    if given.text("block") == "bottleneck":
        plan = [(filters, 1, 1), (filters, kernel, stride), (4 * filters, 1, 1)]
    else:
        plan = [(filters, kernel, stride), (filters, kernel, 1)]
    name = f"stage{stage}_block{block}"
    builder.at(name)
    y = x
    for number, (width, size, step) in enumerate(plan):
        y = builder.normalize(builder.conv(y, width, size, stride=step, bias=norm == "none"), norm)
        if number < len(plan) - 1:
            y = builder.activate(y, function)
    if stride != 1 or incoming != plan[-1][0]:
        builder.at(f"{name}_shortcut")
        x = builder.normalize(builder.conv(x, plan[-1][0], 1, stride=stride, bias=norm == "none"), norm)
    builder.at(f"{name}_end")
    return builder.activate(builder.add("add", y, x), function)


RESNET = NetworkTemplate(
    "resnet",
    (
        batch_size(32),
        whole("blocks", 16, _STAGES, 400, "residual blocks in all: 8, 16, 33 and 50 are the published ResNets"),
        choice("block", "bottleneck", ("basic", "bottleneck"), "what a block is: two convolutions, or three"),
        whole("edge", 224, 1, 4096, "height and width of an image"),
        whole("channels", 3, 1, 64, "channels of an image"),
        real("width", 1.0, 0.0625, 8.0, "what all numbers of filters are multiplied by"),
        choice("kernel", 3, (1, 3, 5, 7), "kernel of the blocks' convolutions (a bottleneck's middle one)"),
        choice("stem", "image", ("image", "small"), "7x7 convolution and pooling, or 3x3 for small images"),
        choice("pool", "max", ("max", "average"), "the kind of pooling of the stem"),
        choice("norm", "batch", ("none", "batch", "group"), "normalization after each convolution"),
        activation("relu"),
        whole("classes", 1000, 2, 100_000, "classes to tell apart"),
        optimizer("momentum"),
        *deformations("stage", _STAGES, "blocks"),
    ),
    _build,
)
