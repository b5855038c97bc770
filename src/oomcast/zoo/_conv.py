"""Convolution, batch norm, activation: the unit of the convolutional families."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

__all__ = ["conv_norm"]


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] | None = None,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Without `padding` the size is kept (for stride 1). The convolution has no bias: batch norm has one."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    if padding is None:
        padding = (sides[0] // 2, sides[1] // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, sides, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)
