"""What compiling itself takes on the GPU: operands that Inductor makes up to time matmuls with (max-autotune).

torch/_inductor/select_algorithm.py (`AlgorithmSelectorCache.get_inputs`): for each matmul, tensors of the form of its
operands and of its result, while everything that the job holds is there; torch/_inductor/runtime/benchmarking.py: with
them a buffer of the size of the GPU's L2 cache, which is written between two runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ....trace import Category
from ..devices import to_real_device
from .target import Target

if TYPE_CHECKING:
    from ..recorder import Recorder

__all__ = ["time_products"]

_EMPTY = torch.ops.aten.empty.memory_format


def time_products(products: Iterable[tuple[int, ...]], target: Target, recorder: Recorder) -> None:
    """Hold, and let go, what timing each of these matmuls takes; equal ones are timed once."""
    if target.gpu is None:
        return
    for tensors in dict.fromkeys(products):
        held = []
        for nbytes in (*tensors, target.gpu.l2_cache):
            options = {"dtype": torch.uint8, "device": to_real_device("cuda")}
            held.append(recorder.run_fake(_EMPTY, (), ([nbytes],), options))
            recorder.hold("inductor: timing of matmuls", held[-1], Category.WORKSPACE)
        held.clear()
