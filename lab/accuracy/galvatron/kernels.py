"""Fused kernels of Megatron-LM and flash-attn, by what they keep and what they write. They run on fakes: no values."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["bias_gelu", "flash_attention", "fused_loss", "masked_softmax", "rms_norm", "vocabulary_loss"]


class _BiasGelu(torch.autograd.Function):
    """What goes in is kept, nothing between is."""

    @staticmethod
    def forward(context: Any, x: Tensor, bias: Tensor) -> Tensor:
        context.save_for_backward(x, bias)
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        x, _ = context.saved_tensors
        gradient = torch.empty_like(x)
        return gradient, gradient.sum(dim=tuple(range(x.dim() - 1)))


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return _BiasGelu.apply(x, bias)


class _VocabularyLoss(torch.autograd.Function):
    """Megatron's cross entropy over logits that are cut by the vocabulary; backward writes into the kept softmax."""

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor, group: Any) -> Tensor:
        highest = torch.max(logits, dim=-1)[0]
        dist.all_reduce(highest, group=group)
        shifted = logits - highest.unsqueeze(-1)
        mask = (labels < 0) | (labels >= logits.shape[-1])
        inside = labels.clone().view(-1)
        predicted = torch.empty_like(highest)
        dist.all_reduce(predicted, group=group)
        torch.exp(shifted, out=shifted)
        sums = shifted.sum(dim=-1)
        dist.all_reduce(sums, group=group)
        loss = torch.log(sums) - predicted
        shifted.div_(sums.unsqueeze(-1))
        context.save_for_backward(shifted, mask, inside)
        return loss

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        softmax, _, _ = context.saved_tensors
        return softmax.mul_(gradients[0].unsqueeze(-1)), None, None


def vocabulary_loss(logits: Tensor, labels: Tensor, group: Any) -> Tensor:
    return _VocabularyLoss.apply(logits, labels, group)


class _FusedLoss(torch.autograd.Function):
    """flash-attn's: the logits are kept, with a sum for each row; `in_place` writes the gradient over them."""

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor, in_place: bool) -> Tensor:
        sums = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        context.save_for_backward(logits, sums, labels)
        context.in_place = in_place
        return torch.empty_like(sums)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        logits, _, _ = context.saved_tensors
        return (logits if context.in_place else torch.empty_like(logits)), None, None


def fused_loss(logits: Tensor, labels: Tensor, in_place: bool) -> Tensor:
    return _FusedLoss.apply(logits, labels, in_place).mean()


class _RmsNorm(torch.autograd.Function):
    """flash-attn's: the input and a figure for each row are kept."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor) -> Tensor:
        context.save_for_backward(x, weight, torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device))
        return torch.empty_like(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        x, weight, _ = context.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return _RmsNorm.apply(x, weight)


class _FlashAttention(torch.autograd.Function):
    """flash-attn's of packed queries, keys and values (samples, tokens, 3, heads, features)."""

    @staticmethod
    def forward(context: Any, packed: Tensor) -> Tensor:
        samples, tokens, _, heads, features = packed.shape
        out = torch.empty((samples, tokens, heads, features), dtype=packed.dtype, device=packed.device)
        sums = torch.empty((samples, heads, tokens), dtype=torch.float32, device=packed.device)
        context.save_for_backward(packed, out, sums)
        return out

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        packed, out, sums = context.saved_tensors
        gradient = torch.empty_like(packed)
        queries = torch.empty(out.shape, dtype=torch.float32, device=out.device)
        rows = torch.empty_like(sums)
        del queries, rows
        return gradient


def flash_attention(packed: Tensor) -> Tensor:
    return _FlashAttention.apply(packed)


class _MaskedSoftmax(torch.autograd.Function):
    """Megatron's: its output is kept, the gradient is written over the one that comes."""

    @staticmethod
    def forward(context: Any, scores: Tensor) -> Tensor:
        out = torch.empty_like(scores)
        context.save_for_backward(out)
        return out

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        return gradients[0]


def masked_softmax(scores: Tensor) -> Tensor:
    return _MaskedSoftmax.apply(scores)
