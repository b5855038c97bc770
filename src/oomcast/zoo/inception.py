"""Inception v3 with its auxiliary classifier, as torchvision trains it: the auxiliary loss counts 0.4."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import ZooModel
from .inputs import Grid
from .jobs import GridJob, image_classification
from .layers import conv_norm

__all__ = ["InceptionV3", "inception_v3"]

AUXILIARY_WEIGHT = 0.4


def _relu() -> nn.Module:
    return nn.ReLU(inplace=True)


def _conv(inputs: int, outputs: int, kernel: int | tuple[int, int], stride: int = 1, pad: bool = True) -> nn.Sequential:
    return conv_norm(inputs, outputs, kernel, stride, None if pad else 0, activation=_relu, eps=1e-3)


class Branches(nn.Module):
    """Runs each branch on the input and joins their channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _grid35(inputs: int, pooled: int) -> nn.Module:
    """Figure 5: a 5x5, two 3x3 in a row, a 1x1 and a pooling branch."""
    return Branches(
        _conv(inputs, 64, 1),
        nn.Sequential(_conv(inputs, 48, 1), _conv(48, 64, 5)),
        nn.Sequential(_conv(inputs, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3)),
        nn.Sequential(nn.AvgPool2d(3, 1, padding=1), _conv(inputs, pooled, 1)),
    )


def _to_grid17(inputs: int) -> nn.Module:
    """Figure 10: from 35x35 to 17x17."""
    return Branches(
        _conv(inputs, 384, 3, 2, pad=False),
        nn.Sequential(_conv(inputs, 64, 1), _conv(64, 96, 3), _conv(96, 96, 3, 2, pad=False)),
        nn.MaxPool2d(3, 2),
    )


def _grid17(width: int) -> nn.Module:
    """Figure 6: 7x7 convolutions as 1x7 and 7x1."""
    return Branches(
        _conv(768, 192, 1),
        nn.Sequential(_conv(768, width, 1), _conv(width, width, (1, 7)), _conv(width, 192, (7, 1))),
        nn.Sequential(
            _conv(768, width, 1),
            _conv(width, width, (7, 1)),
            _conv(width, width, (1, 7)),
            _conv(width, width, (7, 1)),
            _conv(width, 192, (1, 7)),
        ),
        nn.Sequential(nn.AvgPool2d(3, 1, padding=1), _conv(768, 192, 1)),
    )


def _to_grid8() -> nn.Module:
    """From 17x17 to 8x8."""
    return Branches(
        nn.Sequential(_conv(768, 192, 1), _conv(192, 320, 3, 2, pad=False)),
        nn.Sequential(
            _conv(768, 192, 1),
            _conv(192, 192, (1, 7)),
            _conv(192, 192, (7, 1)),
            _conv(192, 192, 3, 2, pad=False),
        ),
        nn.MaxPool2d(3, 2),
    )


def _grid8(inputs: int) -> nn.Module:
    """Figure 7: the 3x3 split side by side into 1x3 and 3x1."""
    return Branches(
        _conv(inputs, 320, 1),
        nn.Sequential(_conv(inputs, 384, 1), Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1)))),
        nn.Sequential(
            _conv(inputs, 448, 1),
            _conv(448, 384, 3),
            Branches(_conv(384, 384, (1, 3)), _conv(384, 384, (3, 1))),
        ),
        nn.Sequential(nn.AvgPool2d(3, 1, padding=1), _conv(inputs, 192, 1)),
    )


class InceptionV3(nn.Module):
    """In training `forward` gives the logits and the auxiliary logits, otherwise the logits."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            _conv(3, 32, 3, 2, pad=False),
            _conv(32, 32, 3, pad=False),
            _conv(32, 64, 3),
            nn.MaxPool2d(3, 2),
            _conv(64, 80, 1),
            _conv(80, 192, 3, pad=False),
            nn.MaxPool2d(3, 2),
        )
        self.until_auxiliary = nn.Sequential(
            _grid35(192, 32),
            _grid35(256, 64),
            _grid35(288, 64),
            _to_grid17(288),
            _grid17(128),
            _grid17(160),
            _grid17(160),
            _grid17(192),
        )
        self.auxiliary = nn.Sequential(
            nn.AvgPool2d(5, 3),
            _conv(768, 128, 1),
            _conv(128, 768, 5, pad=False),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(768, classes),
        )
        self.after_auxiliary = nn.Sequential(_to_grid8(), _grid8(1280), _grid8(2048))
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Dropout(0.5), nn.Flatten(), nn.Linear(2048, classes)
        )

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x = self.until_auxiliary(self.stem(x))
        auxiliary = self.auxiliary(x) if self.training else None
        logits = self.classifier(self.after_auxiliary(x))
        return logits if auxiliary is None else (logits, auxiliary)


def criterion(output: Tensor | tuple[Tensor, Tensor], target: Tensor) -> Tensor:
    """Cross entropy, plus 0.4 times the auxiliary head's in training."""
    if isinstance(output, Tensor):
        return F.cross_entropy(output, target)
    logits, auxiliary = output
    return F.cross_entropy(logits, target) + AUXILIARY_WEIGHT * F.cross_entropy(auxiliary, target)


def auxiliary_side(side: int) -> int:
    """The side of the auxiliary head's last map: 1 at 299, nothing below."""
    for kernel, stride in ((3, 2), (3, 1), (3, 2), (3, 1), (3, 2), (3, 2), (5, 3), (5, 1)):
        side = (side - kernel) // stride + 1
    return side


def inception_v3(entry: ZooModel) -> GridJob:
    return image_classification(entry, InceptionV3, Grid(smallest=299, norm_side=auxiliary_side), criterion)
