"""Layers of Megatron-LM as Hetu-Galvatron cuts them over GPUs: what each keeps for its backward.

Read from AFDWang/Hetu-Galvatron at 0beac24 (galvatron/core/runtime/tensor_parallel, galvatron/site_package/megatron)
and written again for the sizes alone: they run on fakes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Buffer", "Cut", "ParallelLinear", "VocabularyEmbedding", "move_batch"]


class Buffer:
    """Megatron's global buffer: kept for good, as large as was ever needed."""

    def __init__(self) -> None:
        self._kept: Tensor | None = None

    def get(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        count = torch.Size(shape).numel()
        if self._kept is None or self._kept.numel() < count:
            self._kept = torch.empty(count, dtype=like.dtype, device=like.device)
        return self._kept[:count].view(shape)


class Cut:
    """How a layer is cut: over which GPUs, and whether what is not cut is divided by its tokens (`by_tokens`).

    Megatron gathers tokens into a buffer that stays; flash-attn's layers have none.
    """

    def __init__(self, group: Any, parts: int, by_tokens: bool, buffers: Buffer | None) -> None:
        self.group, self.parts, self.buffers = group, parts, buffers
        self.by_tokens = by_tokens

    def gathered(self, x: Tensor) -> Tensor:
        if self.buffers is None:
            return _whole(x, self)
        whole = self.buffers.get((len(x) * self.parts, *x.shape[1:]), x)
        dist.all_gather_into_tensor(whole, x, group=self.group)
        return whole

    def scattered(self, x: Tensor) -> Tensor:
        part = torch.empty((len(x) // self.parts, *x.shape[1:]), dtype=x.dtype, device=x.device)
        dist.reduce_scatter_tensor(part, x, group=self.group)
        return part


class _Linear(torch.autograd.Function):
    """The input is kept as it came: where tokens are divided, it is gathered again for backward."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, bias: Tensor | None, cut: Cut, gathers: bool) -> Tensor:
        context.save_for_backward(x, weight)
        context.cut, context.gathers, context.has_bias = cut, gathers, bias is not None
        out = torch.matmul(cut.gathered(x) if gathers else x, weight.t())
        return out if bias is None else out + bias

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        x, weight = context.saved_tensors
        (gradient,) = gradients
        cut: Cut = context.cut
        total = cut.gathered(x) if context.gathers else x
        for_input = gradient.matmul(weight)
        flat, total = gradient.reshape(-1, gradient.shape[-1]), total.reshape(-1, total.shape[-1])
        part = None
        if context.gathers:
            part = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            dist.reduce_scatter_tensor(part, for_input, group=cut.group)
        for_weight = flat.t().matmul(total)
        for_bias = flat.sum(dim=0) if context.has_bias else None
        return (for_input if part is None else part), for_weight, for_bias, None, None


class _Shared(torch.autograd.Function):
    """The same tokens on all GPUs of a cut: their gradients are summed in place."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: Any) -> Tensor:
        context.group = group
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        dist.all_reduce(gradient, group=context.group)
        return gradient, None


class _Summed(torch.autograd.Function):
    """Parts of sums: summed in place."""

    @staticmethod
    def forward(context: Any, x: Tensor, group: Any) -> Tensor:
        dist.all_reduce(x, group=group)
        context.mark_dirty(x)
        return x

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


class _Scattered(torch.autograd.Function):
    """Parts of sums to parts of the tokens."""

    @staticmethod
    def forward(context: Any, x: Tensor, cut: Cut) -> Tensor:
        context.cut = cut
        return cut.scattered(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        gradient = gradients[0].contiguous()
        whole = torch.empty((len(gradient) * context.cut.parts, *gradient.shape[1:]), dtype=gradient.dtype,
                            device=gradient.device)  # fmt: skip
        dist.all_gather_into_tensor(whole, gradient, group=context.cut.group)
        return whole, None


class ParallelLinear(nn.Module):
    """Cut by its outputs (`by_rows` false) or by its inputs; `apart` returns the bias instead of adding it."""

    def __init__(
        self, inputs: int, outputs: int, cut: Cut, *, by_rows: bool = False, bias: bool = True, apart: bool = False
    ) -> None:
        super().__init__()
        rows, columns = (outputs, inputs // cut.parts) if by_rows else (outputs // cut.parts, inputs)
        self.weight = nn.Parameter(torch.empty(rows, columns))
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None
        self.cut, self.by_rows, self.apart = cut, by_rows, apart

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        cut = self.cut
        added = None if self.apart or self.by_rows else self.bias
        if not self.by_rows and not cut.by_tokens and cut.parts > 1:
            x = _Shared.apply(x, cut.group)
        out = _Linear.apply(x, self.weight, added, cut, cut.by_tokens and not self.by_rows)
        if self.by_rows and cut.by_tokens and cut.parts > 1:
            out = _Scattered.apply(out, cut)
        elif self.by_rows and cut.parts > 1:
            out = _Summed.apply(out, cut.group)
        if self.by_rows and not self.apart and self.bias is not None:
            out = out + self.bias
        return out, self.bias if self.apart else None


class VocabularyEmbedding(nn.Module):
    """Rows divided over the GPUs of the cut; tokens of other GPUs are masked, and the parts summed."""

    def __init__(self, rows: int, width: int, cut: Cut) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows // cut.parts, width))
        self.cut = cut

    def forward(self, tokens: Tensor) -> Tensor:
        if self.cut.parts == 1:
            return functional.embedding(tokens, self.weight)
        mask = (tokens < 0) | (tokens >= len(self.weight))
        inside = tokens.clone() - 0
        inside = torch.where(mask, 0, inside)
        out = functional.embedding(inside, self.weight)
        out = out.masked_fill(mask.unsqueeze(-1), 0.0)
        return _Summed.apply(out, self.cut.group)


class _Moved(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, cut: Cut, gathers: bool, samples_first: bool) -> Tensor:
        context.moves = cut, gathers, samples_first
        return _moved(x, cut, gathers, samples_first)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        cut, gathers, samples_first = context.moves
        return _moved(gradients[0], cut, not gathers, samples_first), None, None, None


def move_batch(x: Tensor, cut: Cut, gathers: bool, samples_first: bool) -> Tensor:
    """Between layers that are not cut (each GPU its samples) and layers that are (all of them have all samples).

    Where tokens are divided, each GPU keeps its part of them. With the samples first, that part is a view, which keeps
    all that was gathered; with the tokens first it is a copy.
    """
    if cut.parts == 1:
        return x
    return _Moved.apply(x, cut, gathers, samples_first)


def _moved(x: Tensor, cut: Cut, gathers: bool, samples_first: bool) -> Tensor:
    x = x.contiguous()
    if samples_first:
        if gathers or cut.by_tokens:
            x = _whole(x, cut)
        return x[: len(x) // cut.parts] if cut.by_tokens or not gathers else x
    if gathers:
        tokens = _whole(x.transpose(0, 1).contiguous(), cut).transpose(0, 1)
        return (tokens[: len(tokens) // cut.parts] if cut.by_tokens else tokens).contiguous()
    samples = (_whole(x, cut) if cut.by_tokens else x).transpose(0, 1)
    return samples[: len(samples) // cut.parts].transpose(0, 1).contiguous()


def _whole(x: Tensor, cut: Cut) -> Tensor:
    whole = torch.empty((len(x) * cut.parts, *x.shape[1:]), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(whole, x, group=cut.group)
    return whole
