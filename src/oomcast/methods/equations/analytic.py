"""The white paper's hand-made model of a 3D U-Net: its equations 1 and 2 as printed, and rebuilt for the network here.

As printed, the last but one term of equation 2 counts a transposed convolution twice: without it the sum is the
5,650,801 values that the paper itself names. Equation 1 holds 306 numbers a voxel, 16 bytes each. Rebuilt, every
layer's output is counted, held once in forward at 4 bytes, and each weight with its gradient and Adam's two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from ..tbem import TEMPLATES, complete, count_parameters

if TYPE_CHECKING:
    from .memory_equation import EquationRow

__all__ = ["ANALYTIC", "applies_to", "as_printed", "rebuilt"]

_FILTERS, _CHANNELS, _CLASSES, _LEVELS, _CONVOLUTIONS = 16, 1, 1, 5, 2
_KERNEL, _UP_KERNEL, _HEAD_KERNEL = 27, 8, 1
_FLOAT = 4
_TEMPLATE = "unet3d"


def as_printed(edge: int, batch_size: int) -> float:
    """Equations 1 and 2, bytes."""
    f = _FILTERS
    maps = (edge**3 * (_CHANNELS + f) * Fraction(10297, 572) + _CLASSES) * 16 * batch_size
    weights = 475 * f + _KERNEL * f + 766 * _KERNEL * f**2 + 170 * _UP_KERNEL * f**2 + _UP_KERNEL * f**2
    weights += _HEAD_KERNEL * f * _CLASSES + _CLASSES
    return float(maps + weights * 24)


def rebuilt(edge: int, batch_size: int) -> float:
    """The same idea from this network's own layers, bytes."""
    template = TEMPLATES[_TEMPLATE]
    network = template.network(complete(template, {"edge": edge, "batch_size": batch_size}))
    return float(_FLOAT * _map_values(edge) * batch_size + 4 * _FLOAT * count_parameters(network, "torch"))


def _map_values(edge: int) -> int:
    """Numbers in all layers' outputs for one sample: convolution, batch norm and ReLU each have one."""
    total = edge**3 * (_CHANNELS + _CLASSES)
    for level in range(_LEVELS):
        voxels, filters = (edge >> level) ** 3, _FILTERS << level
        block = 3 * _CONVOLUTIONS * filters
        pooled = filters // 2 if level else 0
        # On the way up: the transposed convolution, the joined map, the block again.
        up = filters + 2 * filters + block if level < _LEVELS - 1 else 0
        total += voxels * (pooled + block + up)
    return total


ANALYTIC: Mapping[str, Callable[[int, int], float]] = {"analytic, as printed": as_printed, "analytic, rebuilt": rebuilt}


def applies_to(rows: Sequence[EquationRow]) -> bool:
    """Whether these are runs of the network that the model was made for."""
    return all(row.template == _TEMPLATE and {"edge", "batch_size"} <= set(row.parameters) for row in rows)
