"""The host beside the virtual GPU: only the GPU is virtual, so data code runs on real tensors, wherever it runs.

- What a DataLoader fetches in the process at hand is real, however large.
- Forks of the process (a loader's workers, a pool) are plain torch again: no mode, no patch of ours. A virtual tensor
  of the host that they were handed, such as a data set too large to be made, travels without data.
- Pinning works in any thread; pinned memory is the host's, so nothing is counted.
"""

from __future__ import annotations

import contextlib
import os
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import _utils as _data_utils
from torch.utils.data import dataloader as _dataloader

from .devices import HOST, is_virtual
from .errors import GpuRuntimeError
from .functions import VirtualDevice
from .patches import Patches
from .recorder import Recorder

__all__ = ["install_host", "leave_in_forks"]


def install_host(patches: Patches, contexts: contextlib.ExitStack, recorder: Recorder) -> None:
    _install_pinning(patches)
    _install_loaders(patches, recorder)
    _send_fakes_between_processes()
    reducers: dict[type, Any] = vars(ForkingPickler)["_extra_reducers"]
    contexts.callback(reducers.pop, FakeTensor, None)


# -- pinned memory ---------------------------------------------------------------------------------------------------


def _install_pinning(patches: Patches) -> None:
    """Methods and not only handlers of our mode: loaders pin in a thread of their own, which has no modes."""

    def pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
        if _on_gpu(tensor):
            raise GpuRuntimeError(f"cannot pin '{tensor.type()}': only dense CPU tensors can be pinned")
        tensor.__dict__["_oomcast_pinned"] = True
        return tensor

    def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
        return "_oomcast_pinned" in tensor.__dict__

    patches.set(torch.Tensor, "pin_memory", pin_memory)
    patches.set(torch.Tensor, "is_pinned", is_pinned)


def _on_gpu(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor) and is_virtual(tensor.fake_device)


# -- loaders ---------------------------------------------------------------------------------------------------------


def _install_loaders(patches: Patches, recorder: Recorder) -> None:
    single = _dataloader._SingleProcessDataLoaderIter
    fetch = single._next_data

    def fetch_real(iterator: Any) -> Any:
        with recorder.real_host():
            return fetch(iterator)

    patches.set(single, "_next_data", fetch_real)
    collate = _data_utils.collate
    stack = collate.default_collate_fn_map[torch.Tensor]

    def stack_fakes(batch: Any, *, collate_fn_map: Any = None) -> Any:
        """Workers collate into shared memory, which a tensor without data has none of."""
        if isinstance(batch[0], FakeTensor):
            return torch.stack(batch, 0)
        return stack(batch, collate_fn_map=collate_fn_map)

    patches.set(collate, "default_collate_fn_map", {**collate.default_collate_fn_map, torch.Tensor: stack_fakes})


# -- other processes -------------------------------------------------------------------------------------------------


class _Machine:
    """What a fork of this process has to leave."""

    def __init__(self, contexts: contextlib.ExitStack, recorder: Recorder, functions: VirtualDevice) -> None:
        self.contexts = contexts
        self.recorder = recorder
        self.functions = functions


_machine: list[_Machine] = []
_watched = [False]


@contextlib.contextmanager
def leave_in_forks(contexts: contextlib.ExitStack, recorder: Recorder, functions: VirtualDevice) -> Any:
    """A fork made in this context begins by closing `contexts`, in which the virtual GPU was put in place."""
    if not _watched[0] and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_leave)
        _watched[0] = True
    _machine.append(_Machine(contexts, recorder, functions))
    try:
        yield
    finally:
        _machine.clear()


def _leave() -> None:
    """In the fork: torch is as it was before, except that fake tensors can be sent."""
    if not _machine:
        return
    machine = _machine.pop()
    collate = _data_utils.collate.default_collate_fn_map
    with contextlib.suppress(Exception):
        # The modes come off in order: those of the code that forked are laid aside meanwhile.
        functions = _without(torch.overrides, machine.functions)
        dispatch = _without(torch.utils._python_dispatch, machine.recorder)
        torch.utils._python_dispatch._push_mode(machine.recorder)
        torch.overrides._push_mode(machine.functions)
        machine.contexts.close()
        for mode in functions:
            torch.overrides._push_mode(mode)
        for mode in dispatch:
            torch.utils._python_dispatch._push_mode(mode)
    _data_utils.collate.default_collate_fn_map = collate
    _machine.append(machine)
    _send_fakes_between_processes()


def _without(stack: Any, ours: Any) -> list[Any]:
    """Take all modes of this thread off one stack; those that are not ours, from the lowest to the highest."""
    count = {
        torch.overrides: torch._C._len_torch_function_stack,
        torch.utils._python_dispatch: torch._C._len_torch_dispatch_stack,
    }[stack]()
    return [mode for mode in reversed([stack._pop_mode() for _ in range(count)]) if mode is not ours]


def _send_fakes_between_processes() -> None:
    ForkingPickler.register(FakeTensor, _reduce_fake)


def _reduce_fake(tensor: FakeTensor) -> Any:
    if is_virtual(tensor.fake_device):
        raise GpuRuntimeError("a tensor on the GPU cannot be sent to another process here; send it from the host.")
    return _rebuild_fake, (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)


def _rebuild_fake(shape: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        if not _machine:
            return torch.zeros((), dtype=dtype).expand(shape)
        empty = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        return FakeTensor(_machine[0].recorder.fake_mode, empty, HOST)
