"""Outputs of forwards that are not run again: described once, made as often as the script asks for them.

They have the form and the memory of the real ones. Chunks of one tensor share theirs, and a backward through them ends
at once, since nothing was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

__all__ = ["PLAIN", "KnownForward", "describe", "make_again", "tensors_in", "tensors_of"]

PLAIN = (type(None), bool, int, float, str, torch.dtype)


@dataclass(frozen=True)
class MadeUp:
    """One tensor of an output, as it is made anew."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    storage: int
    """Its number among those of the output: chunks of one tensor share theirs."""
    nbytes: int
    """Of the whole storage."""
    offset: int
    """Where it begins there, in elements."""


def _make(tensors: Sequence[MadeUp]) -> list[torch.Tensor]:
    """New ones of the same form, with as much memory behind them."""
    behind: dict[int, torch.Tensor] = {}
    made = []
    with torch.no_grad():
        for one in tensors:
            if one.storage not in behind:
                behind[one.storage] = torch.empty(one.nbytes, dtype=torch.uint8, device="cuda")
            whole = behind[one.storage][: one.nbytes - one.nbytes % one.dtype.itemsize].view(one.dtype)
            made.append(whole.as_strided(one.size, one.stride, one.offset).detach())
    return made


@dataclass(frozen=True)
class KnownForward:
    """What a forward of one form took, and how its output looks."""

    extra: int
    """Bytes at its highest, beyond what there was before."""
    before: int
    """Bytes that were held before."""
    leaves: tuple[Any, ...]
    spec: TreeSpec


class _Unheld(torch.autograd.Function):
    """Stands between an output that was not computed and the backward that is not run."""

    @staticmethod
    def forward(ctx: Any, outputs: Sequence[MadeUp], anchor: torch.Tensor, *inputs: torch.Tensor) -> Any:
        ctx.inputs = inputs
        made = _make(outputs)
        ctx.mark_non_differentiable(*(one for one, form in zip(made, outputs, strict=True) if not form.requires_grad))
        return tuple(made)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *(torch.empty_like(one) for one in ctx.inputs)


def tensors_in(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def describe(output: Any, module: nn.Module, given: Any) -> tuple[tuple[Any, ...], TreeSpec] | None:
    """The leaves of an output as they can be made again; None where they cannot: parts of what was given, or of the
    module's own, would be made with all that they are parts of."""
    leaves, spec = tree_flatten(output)
    described: list[Any] = []
    storages: dict[int, int] = {}
    for leaf in leaves:
        if isinstance(leaf, FakeTensor) and leaf.fake_device.index is not None:
            storage = leaf.untyped_storage()
            if storage.nbytes() > leaf.numel() * leaf.element_size() and _is_part_of(storage, module, given):
                return None
            number = storages.setdefault(storage._cdata, len(storages))
            place = number, storage.nbytes(), int(leaf.storage_offset())
            described.append(MadeUp(tuple(leaf.shape), tuple(leaf.stride()), leaf.dtype, leaf.requires_grad, *place))
        elif isinstance(leaf, PLAIN):
            described.append(leaf)
        else:
            return None
    return (tuple(described), spec) if storages else None


def _is_part_of(storage: Any, module: nn.Module, given: Any) -> bool:
    those = (*tensors_in(given), *module.parameters(), *module.buffers())
    return any(one.layout is torch.strided and one.untyped_storage()._cdata == storage._cdata for one in those)


def tensors_of(leaves: Sequence[Any]) -> list[MadeUp]:
    return [leaf for leaf in leaves if isinstance(leaf, MadeUp)]


def make_again(known: KnownForward, inputs: Sequence[torch.Tensor] = ()) -> Any:
    """`inputs` are those that a script may ask the gradients of."""
    tensors = tensors_of(known.leaves)
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        anchor = torch.zeros((), requires_grad=True)
        made = _Unheld.apply(tensors, anchor, *inputs)
    else:
        made = _make(tensors)
    following = iter(made)
    leaves = [next(following) if isinstance(leaf, MadeUp) else leaf for leaf in known.leaves]
    return tree_unflatten(leaves, known.spec)
