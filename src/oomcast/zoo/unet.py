"""U-Net in 2D and 3D: an encoder that pools, a decoder that joins each level of the encoder again.

Two choices serve today's use rather than the first paper: convolutions are padded, so the output has the input's size,
and where a side does not halve evenly the decoder's map is padded up to the encoder's.

The 3D network is the one of the Dell white paper. Its text gives the kinds of layers, its appendix the counts:
5,650,801 values, of which 2,944 are batch norm's running means and variances. One channel in, 16 filters doubling over
five levels, two 3x3x3 convolutions with bias and batch norm at each, transposed 2x2x2 convolutions that halve the
channels, and a 1x1x1 convolution to one channel give these counts exactly, and the terms of its equation 2. (That
equation has one more term, K_h1·K_w1·K_d1·F², which the count has not.)
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import ZooModel
from .inputs import Grid
from .jobs import GridJob

__all__ = ["UNet", "dice_loss", "unet2d", "unet3d"]

_LEVELS = 5
_CONV: dict[int, type[nn.Conv2d] | type[nn.Conv3d]] = {2: nn.Conv2d, 3: nn.Conv3d}
_UP: dict[int, type[nn.ConvTranspose2d] | type[nn.ConvTranspose3d]] = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_NORM: dict[int, type[nn.BatchNorm2d] | type[nn.BatchNorm3d]] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_POOL: dict[int, type[nn.MaxPool2d] | type[nn.MaxPool3d]] = {2: nn.MaxPool2d, 3: nn.MaxPool3d}


class UNet(nn.Module):
    """`dims` is 2 or 3; `width` is the number of filters of the first level, doubled at each of the four below."""

    def __init__(self, dims: int, channels: int, outputs: int, width: int, bias: bool) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(_LEVELS)]
        self.pool = _POOL[dims](2)
        self.down = nn.ModuleList(
            _double_conv(dims, above, below, bias) for above, below in pairwise([channels, *widths])
        )
        deepest_first = widths[::-1]
        self.up = nn.ModuleList(_UP[dims](deep, shallow, 2, 2) for deep, shallow in pairwise(deepest_first))
        self.join = nn.ModuleList(_double_conv(dims, 2 * shallow, shallow, bias) for shallow in deepest_first[1:])
        self.head = _CONV[dims](width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        encoded: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            encoded.append(x)
        encoded.pop()
        for up, join in zip(self.up, self.join, strict=True):
            skip = encoded.pop()
            x = join(torch.cat([skip, _pad_to(up(x), skip)], 1))
        return self.head(x)


def _double_conv(dims: int, inputs: int, outputs: int, bias: bool) -> nn.Sequential:
    conv, norm = _CONV[dims], _NORM[dims]
    return nn.Sequential(
        conv(inputs, outputs, 3, padding=1, bias=bias),
        norm(outputs),
        nn.ReLU(inplace=True),
        conv(outputs, outputs, 3, padding=1, bias=bias),
        norm(outputs),
        nn.ReLU(inplace=True),
    )


def _pad_to(x: Tensor, like: Tensor) -> Tensor:
    """Zeros at the end of each side that pooling rounded down; no copy where there is none."""
    if x.shape[2:] == like.shape[2:]:
        return x
    missing = [wanted - have for wanted, have in zip(like.shape[2:], x.shape[2:], strict=True)]
    return F.pad(x, [amount for side in reversed(missing) for amount in (0, side)])


def dice_loss(logits: Tensor, target: Tensor) -> Tensor:
    """One minus the soft Dice coefficient of each volume, averaged."""
    over_sample = tuple(range(1, logits.dim()))
    chosen = torch.sigmoid(logits)
    overlap = (chosen * target).sum(over_sample)
    total = chosen.sum(over_sample) + target.sum(over_sample)
    return 1 - ((2 * overlap + 1) / (total + 1)).mean()


_GRID = Grid(smallest=2 ** (_LEVELS - 1), norm_side=lambda side: side // 2 ** (_LEVELS - 1))


def unet2d(entry: ZooModel) -> GridJob:
    """Three channels and two classes, cross entropy at each pixel. No bias before batch norm."""
    return GridJob(
        entry,
        lambda: UNet(dims=2, channels=3, outputs=2, width=64, bias=False),
        _GRID,
        lambda batch_size, shape: torch.randint(2, (batch_size, *shape[1:])),
        F.cross_entropy,
    )


def unet3d(entry: ZooModel) -> GridJob:
    """One channel and one class, with the Dice loss usual for tumours (the white paper names none)."""
    return GridJob(
        entry,
        lambda: UNet(dims=3, channels=1, outputs=1, width=16, bias=True),
        _GRID,
        lambda batch_size, shape: torch.randint(2, (batch_size, 1, *shape[1:])).float(),
        dice_loss,
    )
