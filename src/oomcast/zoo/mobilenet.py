"""MobileNetV2: inverted residuals, wide inside and narrow between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .inputs import Grid, halved
from .jobs import GridJob, image_classification
from .layers import conv_norm

__all__ = ["MobileNetV2", "mobilenet_v2"]

# Table 2 of the paper: expansion, channels, repeats, first stride.
_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def _relu6() -> nn.Module:
    return nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):
    """Expand (1x1), filter each channel (3x3), project (1x1) without activation; add the input if the shape stays."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = inputs * expansion
        layers = [conv_norm(inputs, wide, 1, activation=_relu6)] if expansion != 1 else []
        layers.append(conv_norm(wide, wide, 3, stride, groups=wide, activation=_relu6))
        layers.append(conv_norm(wide, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, activation=_relu6)]
        channels = 32
        for expansion, width, repeats, first_stride in _STAGES:
            for index in range(repeats):
                layers.append(InvertedResidual(channels, width, expansion, 1 if index else first_stride))
                channels = width
        layers.append(conv_norm(channels, 1280, 1, activation=_relu6))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def mobilenet_v2(entry: ZooModel) -> GridJob:
    return image_classification(entry, MobileNetV2, Grid(norm_side=halved(5)))
