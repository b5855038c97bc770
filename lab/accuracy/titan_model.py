"""torchtitan's Llama, operator by operator, so that it keeps what theirs keeps (see `titan_jobs`)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from .titan_jobs import TitanShape

__all__ = ["FeedForward", "TitanLlama"]


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)
        return normed.type_as(x) * self.weight


def _turn(x: Tensor, angles: Tensor) -> Tensor:
    """Pairs of a head as complex numbers, turned by their position's angle."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles[None, : x.shape[1], None]).flatten(3).type_as(x)


class _Attention(nn.Module):
    def __init__(self, shape: TitanShape) -> None:
        super().__init__()
        self.per_head = shape.width // shape.heads
        self.repeats = shape.heads // shape.kv_heads
        shared = shape.kv_heads * self.per_head
        self.wq = nn.Linear(shape.width, shape.width, bias=False)
        self.wk = nn.Linear(shape.width, shared, bias=False)
        self.wv = nn.Linear(shape.width, shared, bias=False)
        self.wo = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        query, key, value = self.wq(x), self.wk(x), self.wv(x)
        query = query.view(batch, tokens, -1, self.per_head)
        key = key.view(batch, tokens, -1, self.per_head)
        value = value.view(batch, tokens, -1, self.per_head)
        query, key = _turn(query, angles), _turn(key, angles)
        key, value = self._repeated(key), self._repeated(value)
        out = functional.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        return self.wo(out.transpose(1, 2).contiguous().view(batch, tokens, -1))

    def _repeated(self, x: Tensor) -> Tensor:
        if self.repeats == 1:
            return x
        batch, tokens, heads, size = x.shape
        wide = x.unsqueeze(3).expand(batch, tokens, heads, self.repeats, size)
        return wide.reshape(batch, tokens, heads * self.repeats, size)


class FeedForward(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1 = nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)
        self.w3 = nn.Linear(width, inner, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class _Block(nn.Module):
    def __init__(self, shape: TitanShape) -> None:
        super().__init__()
        self.attention = _Attention(shape)
        self.feed_forward = FeedForward(shape.width, shape.inner)
        self.attention_norm = _RmsNorm(shape.width)
        self.ffn_norm = _RmsNorm(shape.width)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.ffn_norm(x))


class TitanLlama(nn.Module):
    angles: Tensor

    def __init__(self, shape: TitanShape, length: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        size = shape.width // shape.heads
        self.register_buffer("angles", torch.empty(length, size // 2, dtype=torch.complex64), persistent=False)
        self.layers = nn.ModuleDict({str(place): _Block(shape) for place in range(shape.depth)})
        self.norm = _RmsNorm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            x = layer(x, self.angles)
        return self.output(self.norm(x))
