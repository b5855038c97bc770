"""Networks of convolutions: VGG, ResNet, and U-Net in two and three dimensions."""

from __future__ import annotations

from functools import partial

from .network import Builder, Input, Network, TypedParameters
from .template import (
    NetworkTemplate,
    Parameter,
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

__all__ = ["RESNET", "UNET2D", "UNET3D", "VGG"]

_VGG_STAGES = 5
_VGG_FILTERS = (64, 128, 256, 512, 512)
_VGG_DENSE = 3
_VGG_GROWTH = (2, 3, 4, 1, 0)
"""The stages, counted from 0, in the order in which they get their second convolution.

All further convolutions go to the last three.
"""


def _vgg(parameters: TypedParameters) -> Network:
    depth, convolutions = parameters.whole("depth"), parameters.whole("convolutions")
    on_the_way = min(convolutions, depth - _VGG_DENSE)
    places = _vgg_places(on_the_way)
    branches_at = _vgg_branches(on_the_way, convolutions - on_the_way)
    builder = Builder()
    x, place = "x", 0
    for stage in range(_VGG_STAGES):
        branches = [*branches_at[place : place + places[stage]], *[1] * parameters.whole(f"stage{stage + 1}_extra")]
        place += places[stage]
        x = _vgg_stage(builder, parameters, x, stage, branches)
    x = _vgg_classifier(builder, parameters, x, depth - on_the_way)
    classes = parameters.whole("classes")
    dense = depth - on_the_way
    title = f"VGG with {convolutions} convolutions in {_VGG_STAGES} stages and {dense} fully connected layers"
    return Network(
        "vgg",
        title,
        parameters.whole("batch_size"),
        Input((parameters.whole("channels"), parameters.whole("edge"), parameters.whole("edge"))),
        tuple(builder.layers),
        "classes",
        classes,
        parameters.text("optimizer"),
    )


def _vgg_places(places: int) -> list[int]:
    """How many places for convolutions each stage has: 8, 10, 13 and 16 give those of VGG."""
    counts = [1] * _VGG_STAGES
    for number in range(places - _VGG_STAGES):
        counts[_VGG_GROWTH[number] if number < len(_VGG_GROWTH) else 2 + (number - len(_VGG_GROWTH)) % 3] += 1
    return counts


def _vgg_branches(places: int, more: int) -> list[int]:
    """How many convolutions stand at each place: further ones are dealt out from the deepest place upwards."""
    return [1 + more // places + (places - 1 - place < more % places) for place in range(places)]


def _vgg_stage(builder: Builder, parameters: TypedParameters, x: str, stage: int, branches: list[int]) -> str:
    number = stage + 1
    kernel = parameters.whole(f"stage{number}_kernel") or parameters.whole("kernel")
    share = parameters.real("width") * parameters.real(f"stage{number}_width")
    filters = max(1, round(_VGG_FILTERS[stage] * share))
    padding = kernel // 2 if parameters.text("padding") == "same" else 0
    norm = parameters.text("norm")
    for place, many in enumerate(branches, 1):
        x = _vgg_sum(builder, x, f"stage{number}", place, many, (filters, kernel, padding))
        x = builder.activate(builder.normalize(x, norm), parameters.text("activation"))
    how = parameters.text(f"stage{number}_pool")
    return builder.pool(x, parameters.text("pool") if how == "common" else how, 2, 2)


def _vgg_sum(builder: Builder, x: str, stage: str, place: int, many: int, sizes: tuple[int, int, int]) -> str:
    """The sum of as many convolutions as stand at one place."""
    filters, kernel, padding = sizes
    total = ""
    for branch in range(1, many + 1):
        builder.at(f"{stage}_conv{place}_branch{branch}" if many > 1 else stage)
        output = builder.conv(x, filters, kernel, padding=padding)
        total = builder.add("add", total, output) if total else output
    builder.at(stage)
    return total


def _vgg_classifier(builder: Builder, parameters: TypedParameters, x: str, layers: int) -> str:
    builder.at("classifier")
    if parameters.flag("global_pool"):
        x = builder.add("global_pool", x, how="average")
    x = builder.add("flatten", x)
    width = parameters.whole("dense_width")
    for number in range(1, layers):
        features = width if number < _VGG_DENSE else max(1, width // 4)
        x = builder.activate(builder.linear(x, features), parameters.text("activation"))
        x = builder.drop(x, parameters.real("dropout"))
    return builder.linear(x, parameters.whole("classes"))


VGG = NetworkTemplate(
    "vgg",
    (
        batch_size(32),
        whole("depth", 16, _VGG_STAGES + _VGG_DENSE, 200, "layers with weights on the longest way through"),
        whole("convolutions", 13, _VGG_STAGES, 400, "convolutions in all"),
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
        *deformations("stage", _VGG_STAGES, "convolutions"),
        *(
            choice(f"stage{number}_pool", "common", ("common", "max", "average"), f"the pooling of stage {number}")
            for number in range(1, _VGG_STAGES + 1)
        ),
    ),
    _vgg,
)


_RESNET_STAGES = 4
_PUBLISHED_BLOCKS = {8: (2, 2, 2, 2), 16: (3, 4, 6, 3), 33: (3, 4, 23, 3), 50: (3, 8, 36, 3)}
"""ResNet-18, 34 and 50, 101, 152: their blocks in each stage."""


def _resnet(parameters: TypedParameters) -> Network:
    builder = Builder()
    x = _resnet_stem(builder, parameters)
    filters = [_resnet_filters(parameters, stage) for stage in range(_RESNET_STAGES)]
    width = _resnet_stem_filters(parameters)
    blocks = parameters.whole("blocks")
    for stage, many in enumerate(_resnet_blocks(blocks)):
        for block in range(many + parameters.whole(f"stage{stage + 1}_extra")):
            stride = 2 if stage > 0 and block == 0 else 1
            x = _resnet_block(builder, parameters, x, (stage + 1, block + 1), filters[stage], stride, width)
            width = filters[stage] * (4 if parameters.text("block") == "bottleneck" else 1)
    builder.at("head")
    x = builder.add("flatten", builder.add("global_pool", x, how="average"))
    builder.linear(x, parameters.whole("classes"))
    depth = blocks * (3 if parameters.text("block") == "bottleneck" else 2) + 2
    return Network(
        "resnet",
        f"ResNet-{depth}: {blocks} {parameters.text('block')} blocks in {_RESNET_STAGES} stages",
        parameters.whole("batch_size"),
        Input((parameters.whole("channels"), parameters.whole("edge"), parameters.whole("edge"))),
        tuple(builder.layers),
        "classes",
        parameters.whole("classes"),
        parameters.text("optimizer"),
    )


def _resnet_blocks(blocks: int) -> tuple[int, ...]:
    """Blocks in each stage: as published where there is such a ResNet, else evenly, the third stage first."""
    if blocks in _PUBLISHED_BLOCKS:
        return _PUBLISHED_BLOCKS[blocks]
    order = (2, 1, 3, 0)
    return tuple(
        blocks // _RESNET_STAGES + (order.index(stage) < blocks % _RESNET_STAGES) for stage in range(_RESNET_STAGES)
    )


def _resnet_stem_filters(parameters: TypedParameters) -> int:
    return max(1, round(64 * parameters.real("width")))


def _resnet_filters(parameters: TypedParameters, stage: int) -> int:
    return max(1, round((64 << stage) * parameters.real("width") * parameters.real(f"stage{stage + 1}_width")))


def _resnet_stem(builder: Builder, parameters: TypedParameters) -> str:
    builder.at("stem")
    if parameters.text("stem") == "image":
        x = builder.conv("x", _resnet_stem_filters(parameters), 7, stride=2, bias=False)
    else:
        x = builder.conv("x", _resnet_stem_filters(parameters), 3, bias=False)
    x = builder.activate(builder.normalize(x, parameters.text("norm")), parameters.text("activation"))
    return builder.pool(x, parameters.text("pool"), 3, 2, 1) if parameters.text("stem") == "image" else x


def _resnet_block(
    builder: Builder,
    parameters: TypedParameters,
    x: str,
    place: tuple[int, int],
    filters: int,
    stride: int,
    incoming: int,
) -> str:
    """The way through the convolutions, and the one past them, with a convolution where the shapes differ."""
    stage, block = place
    kernel = parameters.whole(f"stage{stage}_kernel") or parameters.whole("kernel")
    norm, function = parameters.text("norm"), parameters.text("activation")
    if parameters.text("block") == "bottleneck":
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
        whole("blocks", 16, _RESNET_STAGES, 400, "residual blocks in all: 8, 16, 33 and 50 are the published ResNets"),
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
        *deformations("stage", _RESNET_STAGES, "blocks"),
    ),
    _resnet,
)


_UNET_LEVELS = 6


def _unet(rank: int, parameters: TypedParameters) -> Network:
    builder = Builder()
    levels = parameters.whole("levels")
    skips: list[str] = []
    x = "x"
    for level in range(1, levels + 1):
        builder.at(f"encoder{level}")
        if level > 1:
            x = builder.pool(x, parameters.text("pool"), 2, 2)
        x = _unet_convolutions(builder, parameters, x, level)
        skips.append(x)
    skips.pop()
    for level in range(levels - 1, 0, -1):
        builder.at(f"up{level}")
        skip = skips.pop()
        x = builder.add("conv_transpose", x, filters=_unet_filters(parameters, level), kernel=2, stride=2, bias=True)
        x = builder.add("pad_like", x, skip)
        x = builder.add("concatenate", skip, x)
        builder.at(f"decoder{level}")
        x = _unet_convolutions(builder, parameters, x, level)
    builder.at("head")
    classes = parameters.whole("classes")
    builder.conv(x, classes, 1)
    return Network(
        f"unet{rank}d",
        f"A {rank}D U-Net of {levels} levels with {parameters.whole('width')} filters in the first",
        parameters.whole("batch_size"),
        Input((parameters.whole("channels"), *[parameters.whole("edge")] * rank)),
        tuple(builder.layers),
        "dice" if classes == 1 else "pixels",
        classes,
        parameters.text("optimizer"),
    )


def _unet_filters(parameters: TypedParameters, level: int) -> int:
    return max(1, round(parameters.whole("width") * (1 << level - 1) * parameters.real(f"level{level}_width")))


def _unet_convolutions(builder: Builder, parameters: TypedParameters, x: str, level: int) -> str:
    kernel = parameters.whole(f"level{level}_kernel") or parameters.whole("kernel")
    for _ in range(parameters.whole("convolutions") + parameters.whole(f"level{level}_extra")):
        x = builder.conv(x, _unet_filters(parameters, level), kernel, bias=parameters.flag("bias"))
        x = builder.activate(builder.normalize(x, parameters.text("norm")), parameters.text("activation"))
    return x


def _unet_parameters(
    edge: int, channels: int, classes: int, width: int, bias: bool, batch: int
) -> tuple[Parameter, ...]:
    return (
        batch_size(batch),
        whole("edge", edge, 1, 4096, "length of each side"),
        whole("channels", channels, 1, 64, "channels of the input"),
        whole("classes", classes, 1, 1000, "classes of a point; 1 for a mask, trained with the Dice loss"),
        whole("width", width, 1, 1024, "filters of the first level, doubled at each further one"),
        whole("levels", 5, 1, _UNET_LEVELS, "levels, the deepest included"),
        whole("convolutions", 2, 1, 16, "convolutions at each level, on the way down and on the way up"),
        choice("kernel", 3, (1, 3, 5, 7), "kernel of all convolutions"),
        choice("pool", "max", ("max", "average"), "the kind of pooling between levels"),
        choice("norm", "batch", ("none", "batch", "group"), "normalization after each convolution"),
        activation("relu"),
        flag("bias", bias, "whether the convolutions have a bias"),
        optimizer("adam"),
        *deformations("level", _UNET_LEVELS, "convolutions"),
    )


UNET2D = NetworkTemplate("unet2d", _unet_parameters(256, 3, 2, 64, False, 8), partial(_unet, 2))
UNET3D = NetworkTemplate("unet3d", _unet_parameters(64, 1, 1, 16, True, 2), partial(_unet, 3))
