"""FakeTensor as GPUMemNet ran it: the most that storages made by operators hold in one forward and backward pass.

Its script (itu-rad/GPUMemNet, commit f01eb05, Test_Pipeline/cnn_models) runs a model whose parameters are real under a
FakeTensorMode, counts a storage from the first result that lies in it until the last such result is gone, feeds an
input that needs a gradient, moves it to the GPU, and goes backward from the sum of the output: no loss, no optimizer,
no allocator, no context. A parameter counts only while a view of it lives. Here the same runs on fakes of a CPU, where
the move to the GPU is a copy.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["fake_tensor_as_run"]


class _LiveStorages(TorchDispatchMode):
    """Bytes of the storages that results of operators lie in."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: Counter[int] = Counter()
        self.seen: set[int] = set()
        self.live = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, FakeTensor) and id(result) not in self.seen:
                self._hold(result)
        return results

    def _hold(self, result: FakeTensor) -> None:
        storage = result.untyped_storage()
        place, size = storage._cdata, storage.nbytes()
        if not self.holders[place]:
            self.live += size
            self.most = max(self.most, self.live)
        self.holders[place] += 1
        self.seen.add(id(result))
        weakref.finalize(result, self._drop, id(result), place, size)

    def _drop(self, result: int, place: int, size: int) -> None:
        self.seen.discard(result)
        self.holders[place] -= 1
        if not self.holders[place]:
            del self.holders[place]
            self.live -= size


def fake_tensor_as_run(model: torch.nn.Module, image: int, batch_size: int) -> int:
    """Bytes. `model` is made for real, or on `meta`: its values are never looked at."""
    with FakeTensorMode(allow_non_fake_inputs=True), _LiveStorages() as live:
        given = torch.rand([batch_size, 3, image, image], requires_grad=True).clone()
        output = model(given)
        output.sum().backward()
    return live.most
