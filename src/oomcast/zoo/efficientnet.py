"""EfficientNet-B0: inverted residuals with squeeze-and-excitation, SiLU and stochastic depth."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .inputs import Grid, halved
from .jobs import GridJob, image_classification
from .layers import conv_norm

__all__ = ["EfficientNet", "efficientnet_b0"]

# Table 1 of the paper: expansion, kernel, first stride, channels, repeats.
_STAGES = (
    (1, 3, 1, 16, 1),
    (6, 3, 2, 24, 2),
    (6, 5, 2, 40, 2),
    (6, 3, 2, 80, 3),
    (6, 5, 1, 112, 3),
    (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def _silu() -> nn.Module:
    return nn.SiLU(inplace=True)


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number between 0 and 1 that all channels' means decide."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            _silu(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.scale(x) * x


class StochasticDepth(nn.Module):
    """In training, drops the whole residual of a sample with probability `drop`."""

    def __init__(self, drop: float) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop == 0:
            return x
        keep = 1 - self.drop
        return x * x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(keep).div_(keep)


class MBConv(nn.Module):
    def __init__(self, inputs: int, outputs: int, expansion: int, kernel: int, stride: int, drop: float) -> None:
        super().__init__()
        wide = inputs * expansion
        layers: list[nn.Module] = [conv_norm(inputs, wide, 1, activation=_silu)] if expansion != 1 else []
        layers.append(conv_norm(wide, wide, kernel, stride, groups=wide, activation=_silu))
        layers.append(SqueezeExcitation(wide, inputs // 4))
        layers.append(conv_norm(wide, outputs, 1))
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs
        self.stochastic_depth = StochasticDepth(drop)

    def forward(self, x: Tensor) -> Tensor:
        out = self.layers(x)
        if self.residual:
            out = self.stochastic_depth(out)
            out += x
        return out


class EfficientNet(nn.Module):
    def __init__(self, classes: int = 1000, drop: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2, activation=_silu)]
        channels, block = 32, 0
        blocks = sum(repeats for *_, repeats in _STAGES)
        for expansion, kernel, first_stride, width, repeats in _STAGES:
            for index in range(repeats):
                stride = 1 if index else first_stride
                layers.append(MBConv(channels, width, expansion, kernel, stride, drop * block / blocks))
                channels = width
                block += 1
        layers.append(conv_norm(channels, 1280, 1, activation=_silu))
        self.features = nn.Sequential(*layers)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(drop), nn.Linear(1280, classes))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.features(x))
        return self.classifier(torch.flatten(x, 1))


def efficientnet_b0(entry: ZooModel) -> GridJob:
    return image_classification(entry, EfficientNet, Grid(norm_side=halved(5)))
