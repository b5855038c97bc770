"""GPUMemNet's architectures in torch, written after its generators (itu-rad/GPUMemNet, NeuroNetGen_scripts)."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from .published_plans import DENSE_LAYERS, GROWTH, Block

__all__ = ["ACTIVATIONS", "Cnn", "mlp"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "prelu": nn.PReLU,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "swish": nn.SiLU,
    "softplus": nn.Softplus,
    "mish": nn.Mish,
    "identity": nn.Identity,
}


def mlp(widths: tuple[int, ...], activation: str, batch_norm: bool, dropout: float | None, softmax: bool) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths[:-1]):
        layers.append(nn.Linear(inputs, outputs))
        if batch_norm:
            layers.append(nn.BatchNorm1d(outputs))
        layers.append(ACTIVATIONS[activation]())
        if dropout is not None:
            layers.append(nn.Dropout(dropout))
    layers.append(nn.Linear(widths[-2], widths[-1]))
    if softmax:
        layers.append(nn.Softmax(dim=1))
    return nn.Sequential(*layers)


class _Style:
    """What all convolution blocks of a network share."""

    def __init__(self, activation: str, batch_norm: bool, dropout: float | None) -> None:
        self.activation = ACTIVATIONS[activation]
        self.batch_norm = batch_norm
        self.dropout = dropout

    def block(self, inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, stride, 1)]
        if self.batch_norm:
            layers.append(nn.BatchNorm2d(outputs))
        layers.append(self.activation())
        if self.dropout is not None:
            layers.append(nn.Dropout(self.dropout))
        return nn.Sequential(*layers)


class _Residual(nn.Module):
    def __init__(self, block: Block, style: _Style) -> None:
        super().__init__()
        self.conv1 = style.block(block.inputs, block.outputs, block.stride)
        self.conv2 = style.block(block.outputs, block.outputs)
        self.shortcut: nn.Module = nn.Identity()
        if block.inputs != block.outputs or block.stride != 1:
            norm = nn.BatchNorm2d(block.outputs) if style.batch_norm else nn.Identity()
            self.shortcut = nn.Sequential(nn.Conv2d(block.inputs, block.outputs, 1, block.stride), norm)

    def forward(self, x: Tensor) -> Tensor:
        residual = self.shortcut(x)
        x = self.conv1(x)
        x = self.conv2(x)
        return x + residual


class _Dense(nn.Module):
    def __init__(self, block: Block, style: _Style) -> None:
        super().__init__()
        self.layers = nn.ModuleList(style.block(block.inputs + i * GROWTH, GROWTH) for i in range(DENSE_LAYERS))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.layers:
            new_feature = layer(torch.cat(features, 1))
            features.append(new_feature)
        return torch.cat(features, 1)


class _Transition(nn.Module):
    """Its activation is always ReLU, and it never drops out."""

    def __init__(self, block: Block, style: _Style) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(block.inputs, block.outputs, 1)]
        if style.batch_norm:
            layers.append(nn.BatchNorm2d(block.outputs))
        self.conv = nn.Sequential(*layers, nn.ReLU())
        self.pool = nn.AvgPool2d(2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if x.size(2) > 1 and x.size(3) > 1:
            x = self.pool(x)
        return x


class Cnn(nn.Module):
    def __init__(
        self, plan: tuple[Block, ...], classes: int, activation: str, batch_norm: bool, dropout: float | None
    ) -> None:
        super().__init__()
        style = _Style(activation, batch_norm, dropout)
        self.blocks = nn.ModuleList(_module(block, style) for block in plan)
        last = plan[-1]
        outputs = last.inputs + GROWTH * DENSE_LAYERS if last.kind == "dense" else last.outputs
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(outputs, classes)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self._convolutions(x)
        x = self.pool(x)
        x = torch.flatten(x, 1)
        x = self.fc(x)
        return self.softmax(x)

    def _convolutions(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def _module(block: Block, style: _Style) -> nn.Module:
    if block.kind == "residual":
        return _Residual(block, style)
    if block.kind == "dense":
        return _Dense(block, style)
    if block.kind == "transition":
        return _Transition(block, style)
    return style.block(block.inputs, block.outputs)
