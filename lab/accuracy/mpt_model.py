"""MPT's blocks and loss as llm-foundry builds them, with torch's own attention in the place of its flash kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Mpt", "fused_cross_entropy"]

_VOCABULARY = 50368


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.Wqkv = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.Wqkv(x).chunk(3, dim=-1)
        query, key, value = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in parts)
        out = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out_proj(out.transpose(1, 2).reshape(batch, tokens, width))


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.attn = _Attention(width, heads)
        self.norm_2 = nn.LayerNorm(width)
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm_1(x))
        return x + self.down_proj(functional.gelu(self.up_proj(self.norm_2(x))))


class Mpt(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, length: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(_VOCABULARY, width)
        self.wpe = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(depth))
        self.norm_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)
        for block in self.blocks:
            x = block(x)
        return functional.linear(self.norm_f(x), self.wte.weight)


class _FusedCrossEntropy(torch.autograd.Function):
    """What flash-attn's kernel holds: a loss and a sum for each row in fp32, and in backward the gradient of the logits
    beside them, in their own precision. MPT's `loss_fn` is this one unless it is told otherwise. It runs on fakes:
    only the sizes count."""

    @staticmethod
    def forward(context: Any, logits: Tensor, labels: Tensor) -> Tensor:
        sums = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
        context.save_for_backward(logits, sums, labels)
        return torch.empty_like(sums)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> Any:
        logits, _, _ = context.saved_tensors
        return torch.empty_like(logits), None


def fused_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """The loss of each row."""
    return _FusedCrossEntropy.apply(logits, labels)
