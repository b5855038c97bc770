"""Activations that wait for backward in the host's memory, as the offloading of torchtune and TRL has it.

What autograd keeps is copied to the host and let go; backward copies it back. Of what is kept, the last few tensors
stay until others follow, so that the copies can go on beside the work; copies that came back live on a stream of their
own, each until the next node that needs some has run. Small tensors stay, and so does what the head keeps, which
backward needs at once. torchtune copies weights, too, and a tensor that several nodes keep once for each of them; TRL
leaves weights alone, and such a tensor on the GPU for all but the first, where they come close together.

torchtune/training/_activation_offloading.py (0.6.1) and trl/models/activation_offloading.py (1.16): OffloadActivations,
with the defaults of `min_offload_size` and `max_fwd_stash_size`, and `get_act_offloading_ctx_manager`. Both were run on
the virtual GPU beside this class: the bytes in use after the forward pass, the peaks of allocated and reserved bytes in
backward are the same, with checkpointing and without.

Not followed: TRL empties the allocator's cache before each step where bitsandbytes is loaded (`--empty-cache-steps 1`).

Beside checkpointing only what the checkpointed blocks are given is kept by autograd, and so offloaded: what unsloth's
checkpointing does.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

__all__ = ["OffloadedActivations"]

_SMALLEST = 1024
"""Bytes."""
_WINDOW = 5
"""As many tensors that were kept last are still on the GPU."""


class _OnHost(NamedTuple):
    number: int
    copy: torch.Tensor


class OffloadedActivations(saved_tensors_hooks):
    """Entered around each forward pass; `forget` after its backward."""

    def __init__(self, model: nn.Module, *, as_trl: bool) -> None:
        super().__init__(self._put_off, self._bring_back)
        self._as_trl = as_trl
        self._known: dict[tuple[Any, ...], int] = {}
        """Storage, offset and type of what is in the window, or was left on the GPU → its number."""
        self._model = model
        self._stay: set[int] = set()
        self._count = 0
        self._last: dict[int, torch.Tensor] = {}
        self._back: dict[int, torch.Tensor] = {}
        self._node: Any = None
        self._stream = torch.cuda.Stream()
        _leave_alone(_head(model))

    def __enter__(self) -> None:
        if self._as_trl:
            self._stay = {tensor.untyped_storage()._cdata for tensor in self._model.parameters()}
        super().__enter__()

    def forget(self) -> None:
        self._last.clear()
        self._back.clear()
        self._known.clear()
        self._node = None

    def _put_off(self, tensor: torch.Tensor) -> torch.Tensor | _OnHost:
        self._count += 1
        storage = tensor.untyped_storage()._cdata
        identity = storage, tensor.storage_offset(), tensor.dtype
        if self._as_trl and identity in self._known:
            self._known[identity] = self._count
            return tensor
        is_small = tensor.numel() * tensor.element_size() < _SMALLEST
        if tensor.device.type != "cuda" or is_small or storage in self._stay:
            return tensor
        for number in [number for number in self._last if number <= self._count - _WINDOW]:
            del self._last[number]
            self._known = {known: by for known, by in self._known.items() if by != number}
        self._last[self._count], self._known[identity] = tensor, self._count
        return _OnHost(self._count, tensor.to("cpu"))

    def _bring_back(self, kept: torch.Tensor | _OnHost) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        node = torch._C._current_autograd_node()
        earlier = []
        if node is not self._node:
            self._node, earlier = node, list(self._back)
        tensor, users = self._last.get(kept.number), 0
        if tensor is None:
            with torch.cuda.stream(self._stream):
                tensor = kept.copy.to("cuda")
            torch.cuda.current_stream().wait_stream(self._stream)
            self._back[kept.number] = tensor
            users = _users(tensor)
        node.register_hook(functools.partial(self._ran, kept.number, users, earlier))
        return tensor

    def _ran(self, number: int, users: int, earlier: list[int], *_: Any) -> None:
        """A node of backward is done: what those before it needed can go, and what it needed itself, once this stream
        is done with it, where others still use it (a checkpointed block that runs again keeps its input)."""
        own = self._back.get(number)
        if own is not None and _users(own) > users:
            own.record_stream(torch.cuda.current_stream())
            del self._back[number]
        self._last.clear()
        for number in earlier:
            self._back.pop(number, None)


def _users(tensor: torch.Tensor) -> int:
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


def _head(model: Any) -> nn.Module | None:
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = whole.get_output_embeddings() if hasattr(whole, "get_output_embeddings") else None
    return head if isinstance(head, nn.Module) else None


def _leave_alone(module: nn.Module | None) -> None:
    if module is None:
        return
    forward = module.forward

    def without_offloading(*args: Any, **kwargs: Any) -> Any:
        with saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
            return forward(*args, **kwargs)

    module.forward = without_offloading
