"""What the workspaces of cuDNN's engines are made of, as formulas of a convolution's shape.

Looking at tens of thousands of answers shows a few physical readings, and each engine has one:

- tensor-core engines read and write channels-last: for other layouts the operands are converted, so the workspace is
  the bytes of x, w, y (those that the engine converts), channels padded to 16 bytes;
- split-k engines add one fp32 copy of the output for each split;
- grouped convolutions pad every group to 32 channels, or run eight groups at a time, with their operands only;
- engines that gather by a precomputed table keep six or twelve bytes for each pixel, or four for each filter value;
- Winograd engines keep the transformed filter, 16 values for each 3×3 one; older engines unfold the whole input.

A formula is a base and a number of splits; what cuDNN chooses for a shape is learnt (`distill`), what it then takes is
computed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable
from typing import NamedTuple

from .query import Query

__all__ = ["BASES", "FEATURES", "SPLITS", "Sizes", "evaluate", "features", "fitting", "labels", "sizes_of"]

SPLITS: tuple[int, ...] = (
    *range(21), 22, 24, 26, 28, 30, 32, 34, 37, 40, 43, 46, 49, 53, 57, 61, 66, 72, 78, 85, 92, 100, 108, 117, 127, 138,
    150, 163, 177, 192, 208, 226, 245, 266, 288, 313, 340, 370, 400, 435, 470, 510, 555, 600,
)  # fmt: skip
"""How many copies of the output a formula may add; in steps, since a twelfth of a part is little of the whole."""


class Sizes(NamedTuple):
    """Bytes of the parts for one convolution."""

    x: int
    y: int
    w: int
    raw: int
    """x, y and w without padding."""
    raw_inputs: int
    """x and w without padding."""
    eight: int
    """x, y and w of eight groups."""
    grouped: int
    """x, y and w with every group padded to 32 channels."""
    offsets: int
    long_offsets: int
    winograd: int
    columns: int
    counters: int
    taps: int
    """Four bytes for each value of one filter."""
    tables: int
    """Offsets of a row's pixels for each place of the window, and where each tile of 128 × 128 begins."""
    fine_tables: int
    """The same for tiles of 128 × 64."""
    split: int
    """One fp32 copy of the output."""
    tiled: int
    """The same in whole tiles."""


def _pad(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _offsets(kind: str, read: int, made: int) -> int:
    """A table for what is read or made, in blocks of 128 bytes."""
    return (read // 128 + 18) * 128 if kind == "dgrad" else (made // 128 + 1) * 128


def _tables(query: Query, tile: int) -> int:
    window = math.prod(query.w[2:])
    tiles = -(-query.w[1] * window // 128) * -(-query.w[0] // tile)
    return 2303 + 6 * (window + 1) * query.y[-1] + 4 * window * tiles


def _winograd(kind: str, depth: int, outputs: int, width: int, channels: int) -> int:
    """Pairs of input and output channels, in whole tiles; the data gradient runs the other way."""
    return _pad(width, 8) * _pad(channels, 32) if kind == "dgrad" else _pad(depth, 8) * _pad(outputs, 32)


def sizes_of(query: Query) -> Sizes:
    item = {"float32": 4, "float64": 8}.get(query.dtype, 2)
    step = max(16 // item, 1)
    batch, channels, *image = query.x
    outputs, groups, depth = query.y[1], query.groups, query.w[1]
    width = outputs // groups
    pixels, made, window = math.prod(image), math.prod(query.y[2:]), math.prod(query.w[2:])
    inner, outer = groups * _pad(depth, 32), groups * _pad(width, 32)
    x = batch * _pad(channels, step) * pixels
    y = batch * _pad(outputs, step) * made
    w = outputs * _pad(depth, step) * window
    split, rows, columns = {
        "fprop": (y, batch * made, width),
        "dgrad": (x, batch * pixels, depth),
        "wgrad": (w, width, depth * window),
    }[query.kind]
    return Sizes(
        x=x * item,
        y=y * item,
        w=w * item,
        raw=(batch * channels * pixels + batch * outputs * made + outputs * depth * window) * item,
        raw_inputs=(batch * channels * pixels + outputs * depth * window) * item,
        eight=(x + y + w) * item * 8 // groups,
        grouped=(batch * pixels * inner + batch * made * outer + outer * inner * window // groups) * item,
        offsets=_offsets(query.kind, 6 * pixels, 6 * made) * min(groups, 8),
        long_offsets=_offsets(query.kind, 12 * pixels, 12 * made) * min(groups, 8),
        winograd=(16 * _winograd(query.kind, depth, outputs, width, channels) + outputs * depth * window) * item,
        columns=batch * made * channels * window * item,
        counters=_pad(width, 32) * _pad(depth * window, 32) * groups // 128,
        taps=4 * depth * window,
        tables=_tables(query, 128),
        fine_tables=_tables(query, 64),
        split=split * 4,
        tiled=_pad(rows, 64) * _pad(columns, 128) * groups * 4,
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
    ("x+y+w unpadded", lambda s: s.raw),
    ("x+w unpadded", lambda s: s.raw_inputs),
    ("x+y+w of eight groups", lambda s: s.eight),
    ("x+y+w of padded groups", lambda s: s.grouped),
    ("offsets", lambda s: s.offsets),
    ("offsets of twelve bytes", lambda s: s.long_offsets),
    ("winograd", lambda s: s.winograd),
    ("x+y+winograd", lambda s: s.x + s.y + s.winograd),
    ("columns", lambda s: s.columns),
    ("counters", lambda s: s.counters),
    ("taps", lambda s: s.taps),
    ("one small block", lambda s: 131),
    ("256 KiB of counters", lambda s: 2**18 + 195),
    ("576 KiB of counters", lambda s: 9 * 2**16 + 235),
    ("1 MiB of counters", lambda s: 2**20 + 195),
    ("tables", lambda s: s.tables),
    ("tables of finer tiles", lambda s: s.fine_tables),
)

_SPLITTING = 8
"""The first bases, those of operands, may have splits: of plain copies or of tiles."""


def labels() -> int:
    """How many formulas there are."""
    return _SPLITTING * 2 * len(SPLITS) + len(BASES) - _SPLITTING


def evaluate(label: int, sizes: Sizes) -> int:
    """Bytes by formula number `label`."""
    splitting = _SPLITTING * 2 * len(SPLITS)
    if label >= splitting:
        return BASES[_SPLITTING + label - splitting][1](sizes)
    base, rest = divmod(label, 2 * len(SPLITS))
    tiled, split = divmod(rest, len(SPLITS))
    return BASES[base][1](sizes) + SPLITS[split] * (sizes.tiled if tiled else sizes.split)


def fitting(size: int, sizes: Sizes, tolerance: float) -> frozenset[int]:
    """All formulas that give `size` within that share of it."""
    if size == 0:
        return frozenset((0,))
    found: list[int] = []
    slack = tolerance * size
    for base in range(_SPLITTING):
        rest = size - BASES[base][1](sizes)
        if rest < -slack:
            continue
        for tiled, unit in enumerate((sizes.split, sizes.tiled)):
            first = bisect.bisect_left(SPLITS, (rest - slack) / unit)
            last = bisect.bisect_right(SPLITS, (rest + slack) / unit)
            found.extend((base * 2 + tiled) * len(SPLITS) + split for split in range(first, last))
    others = _SPLITTING * 2 * len(SPLITS)
    for base in range(_SPLITTING, len(BASES)):
        if abs(BASES[base][1](sizes) - size) <= slack:
            found.append(others + base - _SPLITTING)
    return frozenset(found)


FEATURES = (
    "batch", "channels", "outputs", "pixels", "made", "depth", "width", "window", "n·pixels", "n·made", "depth·window",
    "width·window", "depth·width", "x", "y", "w", "work", "groups", "stride", "dilation", "depth even", "width even",
    "window's form", "padding", "image width", "tiles", "outputs/channels", "rows' fill", "columns' fill",
    "columns' fill of 64", "reduction", "reduction/rows", "reduction/columns", "rows/columns", "image height",
    "made width", "n·made even", "made even", "n·made beyond 64", "depth beyond 64", "width beyond 64",
)  # fmt: skip


def features(query: Query, sizes: Sizes) -> tuple[float, ...]:
    """What the choice is learnt from; logarithms of base 2 of most. The GPU's size is not in it: cuDNN ignores it.

    A convolution is a matrix product for cuDNN: rows × columns of the result, and the reduction they are summed over.
    """
    log = math.log2
    batch, channels = query.x[:2]
    outputs = query.y[1]
    groups = query.groups
    pixels, made, window = math.prod(query.x[2:]), math.prod(query.y[2:]), math.prod(query.w[2:])
    depth, width = query.w[1], outputs // groups
    rows, columns, reduction = {
        "fprop": (batch * made, width, depth * window),
        "dgrad": (batch * pixels, depth, width * window),
        "wgrad": (width, depth * window, batch * made),
    }[query.kind]
    tiles = -(-rows // 128) * -(-columns // 128) * groups
    return (
        log(batch), log(channels), log(outputs), log(pixels), log(made), log(depth), log(width), log(window),
        log(batch * pixels), log(batch * made), log(depth * window), log(width * window), log(depth * width),
        log(sizes.x), log(sizes.y), log(sizes.w), log(batch * made * depth * window * outputs), log(groups),
        float(query.stride[-1]), float(max(query.dilation)), float(_evenness(depth)), float(_evenness(width)),
        log(query.w[2] / query.w[-1]), float(query.padding[-1]), log(query.x[-1]), log(tiles),
        log(outputs / channels), rows / _pad(rows, 128), columns / _pad(columns, 128), columns / _pad(columns, 64),
        log(reduction), log(reduction / rows), log(reduction / columns), log(rows / columns), log(query.x[2]),
        log(query.y[-1]), float(_evenness(batch * made)), float(_evenness(made)), float(batch * made % 64),
        float(depth % 64), float(width % 64),
    )  # fmt: skip


def _evenness(n: int) -> int:
    """How often 2 divides it, up to 64: kernels want channels aligned."""
    return min((n & -n).bit_length() - 1, 6)
