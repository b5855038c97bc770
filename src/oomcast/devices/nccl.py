"""What NCCL takes from a GPU beside torch's allocator: buffers for every channel of every communicator.

Measured where somebody published it, else derived from the number of channels. A communicator is made with the first
collective of its group, and its buffers stay. All-to-all connects every pair of GPUs and takes far more (nccl#1685);
that is not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..units import MiB
from .gpus import Gpu

__all__ = ["NcclFigure", "nccl_bytes", "nccl_figure"]


@dataclass(frozen=True)
class NcclFigure:
    """Of one communicator."""

    of_two: int
    """Bytes, for a group of two GPUs."""
    of_more: int
    """Bytes, for a larger group: a ring has two neighbours, however many ranks there are."""
    source: str


_NVLINK = NcclFigure(
    of_two=544 * MiB,
    of_more=688 * MiB,
    source="measured on 4 A100 with NVLink (24 channels) in https://github.com/NVIDIA/nccl/issues/964; an H100 had "
    "less, 1.06 GB with its context, in https://github.com/NVIDIA/nccl/issues/1685",
)
_PCIE = NcclFigure(
    of_two=544 * MiB * 2 // 24,
    of_more=688 * MiB * 2 // 24,
    source="derived: as with NVLink, but 2 channels instead of 24; memory is linear in the channels "
    "(https://github.com/NVIDIA/nccl/issues/986)",
)
_WITH_NVLINK = {(7, 0), (8, 0), (9, 0), (10, 0), (10, 3)}
"""Compute capabilities of the data-centre chips whose servers connect them by NVLink."""


def nccl_figure(gpu: Gpu) -> NcclFigure:
    """What a communicator takes on GPUs of this kind, as their servers usually connect them."""
    return _NVLINK if gpu.compute_capability in _WITH_NVLINK else _PCIE


def nccl_bytes(gpu: Gpu, communicators: Iterable[int]) -> int:
    """Of all communicators of a process, given the sizes of their groups."""
    figure = nccl_figure(gpu)
    return sum(figure.of_two if size == 2 else figure.of_more for size in communicators if size > 1)
