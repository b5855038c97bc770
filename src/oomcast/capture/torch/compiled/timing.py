"""What compiling itself takes on the GPU while kernels are timed: a phase of its own.

Matmuls (max-autotune), torch/_inductor/select_algorithm.py (`AlgorithmSelectorCache.get_inputs`): for each, tensors of
the form of its operands and of its result, while everything that the job holds is there. Other kernels, without being
asked: torch/_inductor/runtime/triton_heuristics.py (`pointwise`) has several ways to launch most of them, and the first
launch times them all. Either way torch/_inductor/runtime/benchmarking.py holds a buffer of the size of the GPU's L2
cache, which is written between two runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch

from ....devices import Gpu
from ....trace import Category, Phase
from ..devices import to_real_device
from .plan import LAUNCH

if TYPE_CHECKING:
    from ..recorder import Recorder

__all__ = ["Timing"]

_EMPTY = torch.ops.aten.empty.memory_format


class Timing:
    """Of all that one job compiles; on the host (`gpu` is None), nothing is timed."""

    def __init__(self, gpu: Gpu | None, recorder: Recorder) -> None:
        self._gpu = gpu
        self._recorder = recorder
        self._timed: set[str] = set()
        self._highest = -1

    def products(self, products: Iterable[tuple[int, ...]]) -> None:
        """Hold, and let go, what timing each of these matmuls takes; equal ones are timed once."""
        for tensors in dict.fromkeys(products):
            self._hold("inductor: timing of matmuls", tensors)

    def launch(self, kernel: str, said: str, *, thoroughly: bool) -> Callable[[], None] | None:
        """What is done when this kernel is first launched as is `said` in its source; None: it is not timed.

        Equal kernels are one to torch (`PyCodeCache`). `thoroughly`: the job asks for more ways to launch it.
        """
        if kernel in self._timed or not _has_several_ways(said, thoroughly):
            return None
        self._timed.add(kernel)
        return self._before_first_launch

    def _before_first_launch(self) -> None:
        held = self._recorder.ledger.held
        if held > self._highest:  # else more was held when another kernel was timed, with the same buffer
            self._highest = held
            self._hold("inductor: timing of kernels", ())

    def _hold(self, operator: str, tensors: Iterable[int]) -> None:
        if self._gpu is None:
            return
        with self._recorder.ledger.during(Phase.COMPILING):
            held = []
            for nbytes in (*tensors, self._gpu.l2_cache):
                options = {"dtype": torch.uint8, "device": to_real_device("cuda")}
                held.append(self._recorder.run_fake(_EMPTY, (), ([nbytes],), options))
                self._recorder.hold(operator, held[-1], Category.WORKSPACE)
            held.clear()


def _has_several_ways(said: str, thoroughly: bool) -> bool:
    """`pointwise`: over one dimension two, over two six but for square tiles, over three one. Reductions have one."""
    launch = LAUNCH.search(said)
    if launch is None or thoroughly:
        return launch is not None
    kind, sizes, tiles = launch.groups()
    dimensions = sizes.count(":")
    return kind == "pointwise" and (dimensions == 1 or (dimensions == 2 and tiles != "SQUARE"))
