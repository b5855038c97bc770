"""Convolutions like those of networks: real layers changed at random, and drawn ones. The table learns from both."""

from __future__ import annotations

import random
from collections.abc import Sequence

from oomcast.simulate.cudnn.query import Query

__all__ = ["Layer", "draw", "draw_uneven", "of_layer", "shrunk", "vary"]

Layer = Sequence[int]
"""channels, height, width, outputs, two of each: window, stride, padding, dilation; then groups."""

BATCHES = (1, 2, 4, 8, 8, 12, 16, 16, 24, 32, 32, 32, 48, 64, 64, 96, 128, 128, 192, 256)
IMAGES = (
    1, 1, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 8, 8, 9, 10, 11, 12, 12, 13, 14, 14, 14, 14, 15, 16, 16, 17, 18, 19, 20, 22, 24,
    24, 26, 28, 28, 28, 28, 30, 32, 32, 35, 36, 38, 40, 44, 48, 50, 55, 56, 56, 56, 56, 60, 64, 64, 72, 73, 75, 80, 90,
    96, 100, 109, 111, 112, 112, 112, 120, 128, 128, 136, 144, 147, 149, 150, 160, 176, 190, 192, 200, 208, 224, 224,
    256, 256, 288, 299, 300, 320, 336, 384, 448, 512,
)  # fmt: skip
LARGEST = 6_500_000
"""Values of one image in one tensor."""

SIDES = (128, 160, 176, 192, 208, 224, 240, 256, 272, 288, 300, 320, 352, 384, 416, 448, 480, 512)
USUAL_SIDES = (224, 224, 224, 256, 288)
SMALL_SIDES = (32, 32, 64)
WIDTHS = (0.25, 0.5, 0.5, 0.625, 0.75, 0.75, 0.8, 0.9, 1.1, 1.2, 1.25, 1.25, 1.5, 1.5, 1.75, 2.0, 2.0, 3.0, 4.0)


def of_layer(layer: Layer, batch: int, kind: str, dtype: str, channels_last: bool) -> Query:
    """One direction of a layer; its result is empty where the window does not fit into the image."""
    channels, height, width, outputs, rows, columns, sh, sw, ph, pw, dh, dw, groups = layer
    made = (
        (height + 2 * ph - dh * (rows - 1) - 1) // sh + 1,
        (width + 2 * pw - dw * (columns - 1) - 1) // sw + 1,
    )
    x, w, y = (batch, channels, height, width), (outputs, channels // groups, rows, columns), (batch, outputs, *made)
    return Query(kind, x, w, y, channels_last, dtype, (sh, sw), (ph, pw), (dh, dw))


def vary(rng: random.Random, layers: Sequence[Layer]) -> Layer:
    """One of the layers as a network of another width has it, or one for other images, or both."""
    while True:
        channels, height, width, outputs, rows, columns, *how, groups = rng.choice(layers)
        change = rng.random()
        if change < 0.75:
            ratio = rng.choice(SIDES) / rng.choice(USUAL_SIDES)
            height, width = max(round(height * ratio), 1), max(round(width * ratio), 1)
        if change > 0.4:
            channels, outputs, groups = _other_widths(rng, channels, outputs, groups)
        layer = (channels, height, width, outputs, rows, columns, *how, groups)
        made = of_layer(layer, 1, "fprop", "float32", False).y[2:]
        if min(made) >= 1 and max(channels * height * width, outputs * made[0] * made[1]) <= LARGEST:
            return layer


def shrunk(rng: random.Random, layer: Layer) -> Layer | None:
    """The layer when the network is fed images of 32 or 64 pixels a side, as CIFAR has them; None if none are left."""
    channels, height, width, *rest = layer
    ratio = rng.choice(SMALL_SIDES) / USUAL_SIDES[0]
    small = (channels, max(round(height * ratio), 1), max(round(width * ratio), 1), *rest)
    return small if min(of_layer(small, 1, "fprop", "float32", False).y[2:]) >= 1 else None


def _other_widths(rng: random.Random, channels: int, outputs: int, groups: int) -> tuple[int, int, int]:
    if groups > 1:
        new = _scaled(rng, channels) if groups == channels else max(round(groups * rng.choice((0.5, 0.75, 1.5, 2))), 2)
        return channels // groups * new, outputs // groups * new, new
    which = rng.random()
    if which < 0.4 or channels <= 4:
        return channels, _scaled(rng, outputs), 1
    if which < 0.7:
        return _scaled(rng, channels), outputs, 1
    ratio = rng.choice((0.5, 0.625, 0.75, 1.25, 1.5, 1.75, 2))
    return max(round(channels * ratio / 8) * 8, 8), max(round(outputs * ratio / 8) * 8, 8), 1


def _scaled(rng: random.Random, n: int) -> int:
    step = 8 if n >= 16 else 1
    return max(round(n * rng.choice(WIDTHS) / step) * step, step)


def draw_uneven(rng: random.Random) -> tuple[Layer, int]:
    """A layer of a network whose widths are any numbers, as a random search has them, and its batch size."""
    while True:
        outputs = round(2 ** rng.uniform(3.5, 11))
        change = rng.random()
        if change < 0.3:
            channels = outputs
        elif change < 0.42:
            channels = rng.choice((1, 3))
        elif change < 0.9:
            channels = max(round(outputs / rng.uniform(1, 2)), 1)
        else:
            channels = min(round(outputs * rng.uniform(1, 4)), 2048)
        size = round(rng.uniform(14, 224)) if rng.random() < 0.6 else round(2 ** rng.uniform(2.5, 7))
        window, stride = rng.choice(((3, 1), (3, 1), (3, 1), (3, 1), (3, 1), (3, 1), (3, 2), (1, 1), (1, 2)))
        batch = 2 * round(rng.uniform(1, 32))
        if max(channels, outputs) * size * size <= LARGEST and batch * max(channels, outputs) * size**2 <= 2**30:
            padding = window // 2
            return (channels, size, size, outputs, window, window, stride, stride, padding, padding, 1, 1, 1), batch


def draw(rng: random.Random, kind: str, dtype: str, channels_last: bool) -> Query:
    """One convolution; the same state of `rng` always gives the same one."""
    while True:
        query = _stem(rng) if rng.random() < 0.08 else _inner(rng)
        (batch, channels, height, width), (outputs, groups, window, stride, padding, dilation) = query
        made = tuple(
            (size + 2 * p - d * (r - 1) - 1) // s + 1
            for size, p, d, r, s in zip((height, width), padding, dilation, window, stride, strict=True)
        )
        if min(made) < 1 or channels * height * width > LARGEST or outputs * made[0] * made[1] > LARGEST:
            continue
        if batch * max(channels * height * width, outputs * made[0] * made[1]) > 2**30:
            continue
        x, w = (batch, channels, height, width), (outputs, channels // groups, *window)
        return Query(kind, x, w, (batch, outputs, *made), channels_last, dtype, stride, padding, dilation)


_Drawn = tuple[
    tuple[int, int, int, int],
    tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]],
]


def _stem(rng: random.Random) -> _Drawn:
    """A network's first layer: few channels, a large image, often a patch or a stride."""
    size = rng.choice([image for image in IMAGES if image >= 96])
    channels = rng.choice((3, 3, 3, 3, 1, 4, 12))
    if rng.random() < 0.4:
        window = rng.choice((4, 8, 14, 16, 16, 32))
        return (rng.choice(BATCHES), channels, size, size), _how(_width(rng), 1, window, window, 0)
    window = rng.choice((3, 3, 3, 5, 7, 7))
    padding = rng.choice((window // 2, window // 2, window // 2, 0))
    outputs = rng.choice((8, 12, 16, 24, 32, 32, 40, 48, 64, 64, 96, 128))
    return (rng.choice(BATCHES), channels, size, size), _how(outputs, 1, window, rng.choice((1, 2, 2, 2)), padding)


def _inner(rng: random.Random) -> _Drawn:
    size = rng.choice(IMAGES)
    wide = size if rng.random() < 0.95 else rng.choice(IMAGES)
    channels, outputs = _width(rng), _width(rng)
    if rng.random() < 0.3:
        outputs = channels
    elif rng.random() < 0.3:
        outputs = max(channels * rng.choice((2, 3, 4, 6)) // rng.choice((1, 1, 1, 4, 16)), 1)
    window = rng.choice((1, 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 5, 7, 2, 4))
    if size == 1:
        window = 1
    stride = rng.choice((1, 1, 1, 1, 1, 2)) if window not in (2, 4) else window
    groups = 1
    if window > 1 and stride <= 2 and rng.random() < 0.35:
        groups, channels, outputs = _grouped(rng, channels)
    padding = window // 2 if window % 2 else 0
    dilation = rng.choice((2, 2, 4)) if window == 3 and stride == 1 and rng.random() < 0.06 else 1
    shape = (rng.choice(BATCHES), channels, size, wide)
    if window in (3, 5, 7) and groups == 1 and stride == 1 and rng.random() < 0.08:
        flat = rng.random() < 0.5
        return shape, (
            outputs,
            1,
            (1, window) if flat else (window, 1),
            (1, 1),
            (0, padding) if flat else (padding, 0),
            (1, 1),
        )
    return shape, _how(outputs, groups, window, stride, padding * dilation, dilation)


def _grouped(rng: random.Random, channels: int) -> tuple[int, int, int]:
    """(groups, channels, outputs): depthwise, or groups of a usual width."""
    if rng.random() < 0.5:
        return channels, channels, channels
    width = rng.choice((2, 4, 8, 16, 24, 32, 48, 56, 64, 112, 120, 128))
    groups = max(channels // width, 2)
    return groups, groups * width, groups * width * rng.choice((1, 1, 1, 2))


def _how(
    outputs: int, groups: int, window: int, stride: int, padding: int, dilation: int = 1
) -> tuple[int, int, tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]:
    return outputs, groups, (window, window), (stride, stride), (padding, padding), (dilation, dilation)


def _width(rng: random.Random) -> int:
    """A number of channels: mostly even multiples, spread evenly over its logarithm."""
    n = 2 ** rng.uniform(2.5, 11.3)
    kind = rng.random()
    if kind < 0.3:
        return 1 << round(rng.uniform(3, 11))
    if kind < 0.85:
        step = rng.choice((8, 8, 16, 32, 4))
        return max(round(n / step) * step, step)
    return max(round(n / 2) * 2, 2) if kind < 0.93 else max(round(n), 1)
