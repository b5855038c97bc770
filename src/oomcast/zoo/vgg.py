"""VGG: plain stacks of 3x3 convolutions, with and without batch norm, and three linear layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .inputs import Grid
from .jobs import GridJob, image_classification

__all__ = ["VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn"]

_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """`depths` counts the convolutions before each of the five max poolings."""

    def __init__(self, depths: tuple[int, ...], norm: bool, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for depth, width in zip(depths, _WIDTHS, strict=True):
            for _ in range(depth):
                layers.append(nn.Conv2d(channels, width, 3, padding=1))
                if norm:
                    layers.append(nn.BatchNorm2d(width))
                layers.append(nn.ReLU(inplace=True))
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def _job(entry: ZooModel, depths: tuple[int, ...], norm: bool) -> GridJob:
    return image_classification(entry, lambda: VGG(depths, norm), Grid(smallest=32))


def vgg11(entry: ZooModel) -> GridJob:
    return _job(entry, (1, 1, 2, 2, 2), norm=False)


def vgg11_bn(entry: ZooModel) -> GridJob:
    return _job(entry, (1, 1, 2, 2, 2), norm=True)


def vgg13(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 2, 2, 2), norm=False)


def vgg13_bn(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 2, 2, 2), norm=True)


def vgg16(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 3, 3, 3), norm=False)


def vgg16_bn(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 3, 3, 3), norm=True)


def vgg19(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 4, 4, 4), norm=False)


def vgg19_bn(entry: ZooModel) -> GridJob:
    return _job(entry, (2, 2, 4, 4, 4), norm=True)
