"""The random networks of GPUMemNet as plain data, from the settings in a row's file name.

Written after NeuroNetGen_scripts of itu-rad/GPUMemNet (commit f01eb05). Where the generator drew at random without
recording it (where DenseNets shrink), all possibilities are planned; the row's own parameter count tells which it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

__all__ = ["Block", "cnn_parameters", "cnn_plans", "mlp_parameters", "mlp_widths"]

MOST_FILTERS = 2048
GROWTH = 32
DENSE_LAYERS = 4
LAST_SIZE = 7
DEFAULT_POOLING = 5


@dataclass(frozen=True)
class Block:
    """`conv`: one ConvBlock; `residual`: two and a shortcut; `dense`: four, joined; `transition`: 1×1 and pool."""

    kind: Literal["conv", "residual", "dense", "transition"]
    inputs: int
    outputs: int
    stride: int = 1


def mlp_widths(arch: str, inputs: int, outputs: int, depth: int) -> tuple[int, ...]:
    """Features from the input to the output layer."""
    widths = [inputs]
    decrement = (inputs - outputs) // depth
    for _ in range(depth + (arch == "bottleneck")):
        if arch == "uniform":
            widths.append(inputs)
        elif arch == "gradual":
            widths.append(max(widths[-1] - decrement, outputs))
        else:
            widths.append(max(int(widths[-1] * 0.5), outputs))
    return (*widths, outputs)


def mlp_parameters(widths: tuple[int, ...], batch_norm: bool) -> int:
    """As the rows count them: without PReLU's."""
    linear = sum(a * b + b for a, b in pairwise(widths))
    return linear + (sum(2 * width for width in widths[1:-1]) if batch_norm else 0)


def cnn_plans(arch: str, channels: int, filters: int, depth: int, size: int) -> Iterator[tuple[Block, ...]]:
    """What the generator may have built."""
    if arch == "residual":
        yield tuple(_residual(channels, filters, depth, size))
    elif arch == "dense":
        poolings = max(1, int(math.log2(max(size // LAST_SIZE, 1))))
        for frequency in dict.fromkeys((DEFAULT_POOLING, max(1, math.ceil(depth / poolings)))):
            yield tuple(_dense(channels, depth, frequency))
    else:
        widths = (channels, *(_filters(arch, filters, depth, i) for i in range(depth)))
        yield tuple(Block("conv", a, b) for a, b in pairwise(widths))


def cnn_parameters(plan: tuple[Block, ...], classes: int, batch_norm: bool) -> int:
    """As the rows count them: without PReLU's."""
    last = _outputs(plan[-1]) if plan else 0
    return sum(_block_parameters(block, batch_norm) for block in plan) + last * classes + classes


def _filters(arch: str, base: int, depth: int, i: int) -> int:
    ratio = MOST_FILTERS / base
    if arch == "pyramid":
        return min(int(base * (ratio ** (1 / depth)) ** i), MOST_FILTERS)
    if arch == "gradual":
        return min(int(base * (ratio ** (1 / (2 * depth))) ** i), MOST_FILTERS)
    if arch == "bottleneck":
        growth = 2 if depth <= 2 else ratio ** (1 / (depth - 1))
        return base * 2 if i == 0 else min(int(base * growth ** (i - 1)), MOST_FILTERS)
    if arch == "hourglass":
        rising = depth // 2
        if i < rising:
            return min(int(base * (ratio ** (1 / rising)) ** i), MOST_FILTERS)
        return max(int(base * (ratio ** (1 / (depth - rising))) ** (depth - i - 1)), base)
    return base


def _residual(channels: int, base: int, depth: int, size: int) -> Iterator[Block]:
    growth = (MOST_FILTERS / base) ** (1 / depth)
    for i in range(depth // 2):
        outputs = min(int(base * growth**i), MOST_FILTERS)
        stride = 2 if i % 2 == 1 and size > LAST_SIZE else 1
        yield Block("residual", channels, outputs, stride)
        channels = outputs
        size = size // 2 if stride == 2 else size
        if size <= LAST_SIZE:
            return


def _dense(channels: int, depth: int, frequency: int) -> Iterator[Block]:
    count = depth // 4
    for i in range(count):
        yield Block("dense", channels, GROWTH)
        channels += GROWTH * DENSE_LAYERS
        if i % frequency == 0 and i != count - 1:
            yield Block("transition", channels, channels // 2)
            channels //= 2


def _outputs(block: Block) -> int:
    return block.inputs + GROWTH * DENSE_LAYERS if block.kind == "dense" else block.outputs


def _block_parameters(block: Block, batch_norm: bool) -> int:
    a, b = block.inputs, block.outputs
    norm = 2 * b if batch_norm else 0
    if block.kind == "conv":
        return 9 * a * b + b + norm
    if block.kind == "transition":
        return a * b + b + norm
    if block.kind == "dense":
        return sum(9 * (a + i * b) * b + b + norm for i in range(DENSE_LAYERS))
    shortcut = a * b + b + norm if a != b or block.stride != 1 else 0
    return shortcut + 9 * a * b + b + norm + 9 * b * b + b + norm
