"""Symmetric memory: buffers that the GPUs of a group map into each other (`torch.distributed._symmetric_memory`).

A rank's own buffers are tensors here. Those of other ranks are mapped, not held: where code asks for one, it gets its
own, as collectives give it what this rank has. What its multicast objects and signal pads take is not counted.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ..patches import Patches

__all__ = ["install_symmetric_memory"]

_MODULE = "torch.distributed._symmetric_memory"


class _Handle:
    """What a rendezvous gives: a view of this rank's buffer for every rank, and signals that are there at once."""

    def __init__(self, tensor: torch.Tensor, group: Any) -> None:
        self._flat = tensor.detach().view(-1)
        self.rank, self.world_size = dist.get_rank(group), dist.get_world_size(group)
        self.buffer_size = tensor.numel() * tensor.element_size()
        self.multicast_ptr = 0

    def get_buffer(self, rank: int, sizes: Sequence[int], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        flat = self._flat.view(torch.uint8).view(dtype)
        return flat[storage_offset : storage_offset + math.prod(sizes)].view(tuple(sizes))

    get_remote_tensor = get_buffer

    def barrier(self, *args: Any, **options: Any) -> None: ...

    put_signal = wait_signal = barrier


def install_symmetric_memory(patches: Patches, assume: Callable[[str], None]) -> None:
    """Where torch has it and can be asked for it without a GPU."""
    try:
        module: Any = importlib.import_module(_MODULE)
    except ImportError:
        return
    original = module._SymmetricMemory

    class OfThisRank:
        """In the place of torch's class, whose functions are static."""

        def __getattr__(self, name: str) -> Any:
            return getattr(original, name)

        @staticmethod
        def empty_strided_p2p(
            size: Sequence[int],
            stride: Sequence[int],
            dtype: torch.dtype,
            device: Any,
            group_name: str | None = None,
            alloc_id: int | None = None,
        ) -> torch.Tensor:
            assume("symmetric memory is counted among the tensors; its signals and multicast objects are not counted")
            tensor = torch.empty_strided(tuple(size), tuple(stride), dtype=dtype, device=device)
            tensor.group_name = group_name  # type: ignore[attr-defined]
            return tensor

        @staticmethod
        def rendezvous(tensor: torch.Tensor, group_name: str | None = None) -> _Handle:
            name = group_name or getattr(tensor, "group_name", None)
            resolve: Any = vars(c10d)["_resolve_process_group"]
            return _Handle(tensor, resolve(name) if name else None)

        @staticmethod
        def has_multicast_support(*args: Any) -> bool:
            return False

    patches.set(module, "_SymmetricMemory", OfThisRank())
    patches.set(module, "_group_name_to_workspace_tensor", {})  # of this job alone
    if hasattr(module, "_should_use_implicit_mempool"):
        patches.set(module, "_should_use_implicit_mempool", lambda: False)
