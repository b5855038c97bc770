"""VGG, in which depth and the number of convolutions can be chosen independently.

In VGG itself they are one thing: depth 11, 13, 16, 19 is 8, 10, 13, 16 convolutions and 3 fully connected layers.
TBEM's table 1 makes two factors of them. Here both are true counts of the network that is built: `depth` is the
number of layers with weights on the longest way from input to output, `convolutions` the number of all convolutions.
Where convolutions are few, the rest of the depth is further fully connected layers, a quarter as wide as VGG's own, so
that they do not weigh more than the convolutions whose place they take; where convolutions are more than the depth
holds beside three fully connected layers, the others stand beside those on the way, two or more in one place, their
outputs added. The four pairs of VGG itself give VGG itself.
"""

from __future__ import annotations

from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import (
    NetworkTemplate,
    activation,
    batch_size,
    choice,
    deformations,
    dropout,
    flag,
    optimizer,
    real,
    whole,
)

__all__ = ["VGG"]

_STAGES = 5
_WIDTHS = (64, 128, 256, 512, 512)
_CLASSIFIER = 3
_GROWTH = (2, 3, 4, 1, 0)
"""The stages, from 0, in the order in which they get their second convolution; the last three take all further ones."""


def _build(given: Given) -> Network:
    depth, convolutions = given.whole("depth"), given.whole("convolutions")
    on_the_way = min(convolutions, depth - _CLASSIFIER)
    places = _spread(on_the_way)
    beside = _beside(on_the_way, convolutions - on_the_way)
    builder = Builder()
    x, place = "x", 0
    for stage in range(_STAGES):
        branches = [*beside[place : place + places[stage]], *[1] * given.whole(f"stage{stage + 1}_extra")]
        place += places[stage]
        x = _stage(builder, given, x, stage, branches)
    x = _classifier(builder, given, x, depth - on_the_way)
    classes = given.whole("classes")
    dense = depth - on_the_way
    title = f"VGG with {convolutions} convolutions in {_STAGES} stages and {dense} fully connected layers"
    return Network(
        "vgg",
        title,
        given.whole("batch_size"),
        Input((given.whole("channels"), given.whole("edge"), given.whole("edge"))),
        tuple(builder.layers),
        "classes",
        classes,
        given.text("optimizer"),
    )


def _spread(places: int) -> list[int]:
    """How many places for convolutions each stage has: 8, 10, 13 and 16 give those of VGG."""
    counts = [1] * _STAGES
    for number in range(places - _STAGES):
        counts[_GROWTH[number] if number < len(_GROWTH) else 2 + (number - len(_GROWTH)) % 3] += 1
    return counts


def _beside(places: int, more: int) -> list[int]:
    """How many convolutions stand at each place: further ones are dealt out from the deepest place upwards."""
    return [1 + more // places + (places - 1 - place < more % places) for place in range(places)]


def _stage(builder: Builder, given: Given, x: str, stage: int, branches: list[int]) -> str:
    number = stage + 1
    kernel = given.whole(f"stage{number}_kernel") or given.whole("kernel")
    share = given.real("width") * given.real(f"stage{number}_width")
    filters = max(1, round(_WIDTHS[stage] * share))
    padding = kernel // 2 if given.text("padding") == "same" else 0
    norm = given.text("norm")
    for place, many in enumerate(branches, 1):
        x = _beside_one_another(builder, x, f"stage{number}", place, many, (filters, kernel, padding))
        x = builder.activate(builder.normalize(x, norm), given.text("activation"))
    how = given.text(f"stage{number}_pool")
    return builder.pool(x, given.text("pool") if how == "common" else how, 2, 2)


def _beside_one_another(
    builder: Builder, x: str, stage: str, place: int, many: int, sizes: tuple[int, int, int]
) -> str:
    """The sum of as many convolutions as stand at one place."""
    filters, kernel, padding = sizes
    total = ""
    for branch in range(1, many + 1):
        builder.at(f"{stage}_conv{place}_branch{branch}" if many > 1 else stage)
        output = builder.conv(x, filters, kernel, padding=padding)
        total = builder.add("add", total, output) if total else output
    builder.at(stage)
    return total


def _classifier(builder: Builder, given: Given, x: str, layers: int) -> str:
    builder.at("classifier")
    if given.flag("global_pool"):
        x = builder.add("global_pool", x, how="average")
    x = builder.add("flatten", x)
    width = given.whole("dense_width")
    for number in range(1, layers):
        features = width if number < _CLASSIFIER else max(1, width // 4)
        x = builder.activate(builder.linear(x, features), given.text("activation"))
        x = builder.drop(x, given.real("dropout"))
    return builder.linear(x, given.whole("classes"))


VGG = NetworkTemplate(
    "vgg",
    (
        batch_size(32),
        whole("depth", 16, _STAGES + _CLASSIFIER, 200, "layers with weights on the longest way through"),
        whole("convolutions", 13, _STAGES, 400, "convolutions in all"),
        whole("edge", 224, 1, 4096, "height and width of an image"),
        whole("channels", 3, 1, 64, "channels of an image"),
        real("width", 1.0, 0.015625, 8.0, "what all numbers of filters are multiplied by"),
        choice("kernel", 3, (1, 3, 5, 7), "kernel of all convolutions"),
        choice("padding", "same", ("same", "valid"), "whether convolutions keep the size or shrink it"),
        choice("pool", "max", ("max", "average"), "the kind of pooling after each stage"),
        choice("norm", "none", ("none", "batch", "group"), "normalization after each convolution"),
        activation("relu"),
        whole("dense_width", 4096, 1, 65_536, "width of VGG's own fully connected layers"),
        flag("global_pool", False, "one average of each channel instead of the whole map before the classifier"),
        dropout(0.5, "between fully connected layers"),
        whole("classes", 1000, 2, 100_000, "classes to tell apart"),
        optimizer("momentum"),
        *deformations("stage", _STAGES, "convolutions"),
        *(
            choice(f"stage{number}_pool", "common", ("common", "max", "average"), f"the pooling of stage {number}")
            for number in range(1, _STAGES + 1)
        ),
    ),
    _build,
)
