"""U-Net in 2D and 3D: an encoder that pools, a decoder that joins each level of the encoder again.

With its defaults the 3D network is that of the Dell white paper: 5,650,801 values, of which 2,944 are batch norm's
running means and variances. Where a side does not halve evenly, the decoder pads its map up to the encoder's.
"""

from __future__ import annotations

from functools import partial

from .._template import Parameter
from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import (
    NetworkTemplate,
    activation,
    batch_size,
    choice,
    deformations,
    flag,
    optimizer,
    whole,
)

__all__ = ["UNET2D", "UNET3D"]

_MOST_LEVELS = 6


def _build(rank: int, given: Given) -> Network:
    builder = Builder()
    levels = given.whole("levels")
    skips: list[str] = []
    x = "x"
    for level in range(1, levels + 1):
        builder.at(f"encoder{level}")
        if level > 1:
            x = builder.pool(x, given.text("pool"), 2, 2)
        x = _convolutions(builder, given, x, level)
        skips.append(x)
    skips.pop()
    for level in range(levels - 1, 0, -1):
        builder.at(f"up{level}")
        skip = skips.pop()
        x = builder.add("conv_transpose", x, filters=_filters(given, level), kernel=2, stride=2, bias=True)
        x = builder.add("pad_like", x, skip)
        x = builder.add("concatenate", skip, x)
        builder.at(f"decoder{level}")
        x = _convolutions(builder, given, x, level)
    builder.at("head")
    classes = given.whole("classes")
    builder.conv(x, classes, 1)
    return Network(
        f"unet{rank}d",
        f"A {rank}D U-Net of {levels} levels with {given.whole('width')} filters in the first",
        given.whole("batch_size"),
        Input((given.whole("channels"), *[given.whole("edge")] * rank)),
        tuple(builder.layers),
        "dice" if classes == 1 else "pixels",
        classes,
        given.text("optimizer"),
    )


def _filters(given: Given, level: int) -> int:
    return max(1, round(given.whole("width") * (1 << level - 1) * given.real(f"level{level}_width")))


def _convolutions(builder: Builder, given: Given, x: str, level: int) -> str:
    kernel = given.whole(f"level{level}_kernel") or given.whole("kernel")
    for _ in range(given.whole("convolutions") + given.whole(f"level{level}_extra")):
        x = builder.conv(x, _filters(given, level), kernel, bias=given.flag("bias"))
        x = builder.activate(builder.normalize(x, given.text("norm")), given.text("activation"))
    return x


def _parameters(edge: int, channels: int, classes: int, width: int, bias: bool, batch: int) -> tuple[Parameter, ...]:
    return (
        batch_size(batch),
        whole("edge", edge, 1, 4096, "length of each side"),
        whole("channels", channels, 1, 64, "channels of the input"),
        whole("classes", classes, 1, 1000, "classes of a point; 1 for a mask, trained with the Dice loss"),
        whole("width", width, 1, 1024, "filters of the first level, doubled at each further one"),
        whole("levels", 5, 1, _MOST_LEVELS, "levels, the deepest included"),
        whole("convolutions", 2, 1, 16, "convolutions at each level, on the way down and on the way up"),
        choice("kernel", 3, (1, 3, 5, 7), "kernel of all convolutions"),
        choice("pool", "max", ("max", "average"), "the kind of pooling between levels"),
        choice("norm", "batch", ("none", "batch", "group"), "normalization after each convolution"),
        activation("relu"),
        flag("bias", bias, "whether the convolutions have a bias"),
        optimizer("adam"),
        *deformations("level", _MOST_LEVELS, "convolutions"),
    )


UNET2D = NetworkTemplate("unet2d", _parameters(256, 3, 2, 64, False, 8), partial(_build, 2))
UNET3D = NetworkTemplate("unet3d", _parameters(64, 1, 1, 16, True, 2), partial(_build, 3))
