"""Recorded convolutions as capture writes them, for the tests of this folder."""

from __future__ import annotations

from oomcast.trace import KernelCall, Operand

Shape = tuple[int, ...]

# channels, image, outputs, window, stride: one of each kind in ResNet-50
RESNET_50 = (
    (3, 224, 64, 7, 2),
    (64, 56, 64, 1, 1),
    (64, 56, 64, 3, 1),
    (64, 56, 256, 1, 1),
    (128, 56, 128, 3, 2),
    (256, 56, 512, 1, 2),
    (128, 28, 128, 3, 1),
    (512, 28, 1024, 1, 2),
    (256, 14, 256, 3, 1),
    (1024, 14, 2048, 1, 2),
    (512, 7, 512, 3, 1),
    (512, 7, 2048, 1, 1),
)


def strides(shape: Shape, channels_last: bool = False) -> Shape:
    order = [1, *range(len(shape) - 1, 1, -1), 0] if channels_last else range(len(shape) - 1, -1, -1)
    found, step = [0] * len(shape), 1
    for dimension in order:
        found[dimension] = step
        step *= shape[dimension]
    return tuple(found)


def convolution(
    operator: str,
    batch: int,
    channels: int,
    image: int,
    outputs: int,
    window: int,
    stride: int = 1,
    *,
    groups: int = 1,
    dtype: str = "float32",
    channels_last: bool = False,
    spatial: int = 2,
    dilation: int = 1,
) -> KernelCall:
    padding = dilation * (window - 1) // 2
    made = (image + 2 * padding - dilation * (window - 1) - 1) // stride + 1
    shapes = (
        (batch, channels, *[image] * spatial),
        (outputs, channels // groups, *[window] * spatial),
        (batch, outputs, *[made] * spatial),
    )
    return KernelCall(
        operator,
        tuple(Operand(shape, strides(shape, channels_last), dtype) for shape in shapes),
        (
            ("stride", (stride,) * spatial),
            ("padding", (padding,) * spatial),
            ("dilation", (dilation,) * spatial),
            ("groups", groups),
        ),
    )
