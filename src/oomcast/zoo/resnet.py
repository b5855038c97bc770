"""ResNet: basic blocks for 18 and 34 layers, bottlenecks with the stride on the 3x3 convolution for the deeper ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .inputs import Grid, halved
from .jobs import GridJob, image_classification
from .layers import conv_norm

__all__ = ["ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]

_relu = partial(nn.ReLU, inplace=True)


class Block(nn.Module):
    """A residual block. With `bottleneck` it works on a quarter of its output channels."""

    def __init__(self, inputs: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.residual = nn.Sequential(
                conv_norm(inputs, width, 1, activation=_relu),
                conv_norm(width, width, 3, stride, activation=_relu),
                conv_norm(width, outputs, 1),
            )
        else:
            self.residual = nn.Sequential(
                conv_norm(inputs, width, 3, stride, activation=_relu),
                conv_norm(width, outputs, 3),
            )
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv_norm(inputs, outputs, 1, stride) if changes else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        out = self.residual(x)
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    """`depths` counts the blocks of each of the four stages."""

    def __init__(self, depths: tuple[int, ...], bottleneck: bool, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv_norm(3, 64, 7, 2, activation=_relu), nn.MaxPool2d(3, 2, padding=1))
        stages: list[nn.Module] = []
        channels = 64
        for stage, depth in enumerate(depths):
            width = 64 * 2**stage
            blocks: list[nn.Module] = []
            for index in range(depth):
                blocks.append(Block(channels, width, 2 if stage and index == 0 else 1, bottleneck))
                channels = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stages(self.stem(x)))
        return self.classifier(torch.flatten(x, 1))


def _job(entry: ZooModel, depths: tuple[int, ...], bottleneck: bool) -> GridJob:
    return image_classification(entry, lambda: ResNet(depths, bottleneck), Grid(norm_side=halved(5)))


def resnet18(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 2, 2), bottleneck=False)


def resnet34(entry: ZooModel) -> GridJob:
    return _job(entry, (3, 4, 6, 3), bottleneck=False)


def resnet50(entry: ZooModel) -> GridJob:
    return _job(entry, (3, 4, 6, 3), bottleneck=True)


def resnet101(entry: ZooModel) -> GridJob:
    return _job(entry, (3, 4, 23, 3), bottleneck=True)


def resnet152(entry: ZooModel) -> GridJob:
    return _job(entry, (3, 8, 36, 3), bottleneck=True)
