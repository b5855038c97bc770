"""A multilayer perceptron."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ._entry import ZooModel
from ._jobs import TabularJob

__all__ = ["MLP", "mlp"]


class MLP(nn.Module):
    """`widths` goes from the number of inputs to the number of classes; ReLU between."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(torch.flatten(x, 1))


def mlp(entry: ZooModel) -> TabularJob:
    return TabularJob(entry, lambda: MLP((784, 2048, 2048, 2048, 10)), classes=10)
