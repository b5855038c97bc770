"""What the workspaces of cuDNN's engines are made of, as formulas of a convolution's shape.

Looking at tens of thousands of answers shows a few physical readings, and each engine has one:

- tensor-core engines read and write channels-last: for other layouts the operands are converted, so the workspace is
  the bytes of x, w, y (those that the engine converts), channels padded to 16 bytes;
- split-k engines add one fp32 copy of the output for each split;
- engines that gather by a precomputed table of offsets keep six bytes for each output pixel;
- Winograd engines keep the transformed filter, 16 values for each 3×3 one; older engines unfold the whole input.

A formula is a base and a number of splits; what cuDNN chooses for a shape is learnt (`distill`), what it then takes is
computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from ._query import Query

__all__ = ["BASES", "FEATURES", "SPLITS", "Sizes", "evaluate", "features", "sizes_of"]

SPLITS: tuple[int, ...] = (
    *range(13), 14, 16, 18, 20, 22, 24, 27, 30, 33, 36, 40, 44, 48, 54, 60, 66, 72, 80, 88, 96, 108, 120, 132, 144, 160,
    176, 192, 216, 240, 264, 288, 320, 352, 384, 432, 480, 528, 576, 640,
)  # fmt: skip
"""How many copies of the output a formula may add; steps of 10 %, since a tenth of a part is little of the whole."""


class Sizes(NamedTuple):
    """Bytes of the parts for one convolution."""

    x: int
    y: int
    w: int
    split: int
    """One fp32 copy of the output."""
    offsets: int
    winograd: int
    columns: int
    tiles: int
    """One small block of 16 KiB: descriptors, counters, tile lists."""


def _pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def sizes_of(query: Query) -> Sizes:
    item = 4 if query.dtype == "float32" else 8 if query.dtype == "float64" else 2
    step = max(16 // item, 1)
    batch, channels, *image = query.x
    outputs = query.y[1]
    pixels, made = math.prod(image), math.prod(query.y[2:])
    window = math.prod(query.w[2:])
    depth = query.w[1]
    x = batch * _pad(channels, step) * pixels
    y = batch * _pad(outputs, step) * made
    w = outputs * _pad(depth, step) * window
    split = {"fprop": y, "dgrad": x, "wgrad": w}[query.kind]
    return Sizes(
        x=x * item,
        y=y * item,
        w=w * item,
        split=split * 4,
        offsets=(6 * made // 128 + 1) * 128,
        winograd=16 * depth * _pad(outputs, 32) * item + outputs * depth * window * item,
        columns=batch * made * channels * window * item,
        tiles=16384,
    )


BASES: tuple[tuple[str, Callable[[Sizes], int]], ...] = (
    ("0", lambda s: 0),
    ("x+y+w", lambda s: s.x + s.y + s.w),
    ("x+y", lambda s: s.x + s.y),
    ("x+w", lambda s: s.x + s.w),
    ("y+w", lambda s: s.y + s.w),
    ("x", lambda s: s.x),
    ("y", lambda s: s.y),
    ("w", lambda s: s.w),
    ("offsets", lambda s: s.offsets),
    ("winograd", lambda s: s.winograd),
    ("x+y+winograd", lambda s: s.x + s.y + s.winograd),
    ("columns", lambda s: s.columns),
    ("tiles", lambda s: s.tiles),
)


def evaluate(label: int, sizes: Sizes) -> int:
    """Bytes by formula number `label`: base and splits in one number."""
    base, split = divmod(label, len(SPLITS))
    return BASES[base][1](sizes) + SPLITS[split] * sizes.split


FEATURES = (
    "batch", "channels", "outputs", "pixels", "made", "depth", "width", "window", "n·pixels", "n·made", "depth·window",
    "width·window", "depth·width", "x", "y", "w", "work", "groups", "stride", "dilation", "depth even", "width even",
    "window's form", "padding", "image width", "tiles", "outputs/channels",
)  # fmt: skip


def features(query: Query, sizes: Sizes) -> tuple[float, ...]:
    """What the choice is learnt from; logarithms of base 2 of most. The GPU's size is not in it: cuDNN ignores it."""
    log = math.log2
    batch, channels = query.x[:2]
    outputs = query.y[1]
    groups = query.groups
    pixels, made, window = math.prod(query.x[2:]), math.prod(query.y[2:]), math.prod(query.w[2:])
    depth, width = query.w[1], outputs // groups
    if query.kind == "fprop":
        rows, columns = batch * made, width
    elif query.kind == "dgrad":
        rows, columns = batch * pixels, depth
    else:
        rows, columns = width, depth * window
    tiles = -(-rows // 128) * -(-columns // 128) * groups
    return (
        log(batch), log(channels), log(outputs), log(pixels), log(made), log(depth), log(width), log(window),
        log(batch * pixels), log(batch * made), log(depth * window), log(width * window), log(depth * width),
        log(sizes.x), log(sizes.y), log(sizes.w), log(batch * made * depth * window * outputs), log(groups),
        float(query.stride[-1]), float(max(query.dilation)), float(_evenness(depth)), float(_evenness(width)),
        log(query.w[2] / query.w[-1]), float(query.padding[-1]), log(query.x[-1]), log(tiles),
        log(outputs / channels),
    )  # fmt: skip


def _evenness(n: int) -> int:
    """How often 2 divides it, up to 64: kernels want channels aligned."""
    return min((n & -n).bit_length() - 1, 6)
