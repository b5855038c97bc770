"""Llama 2 and 3: RMSNorm in fp32, rotary positions, SwiGLU, grouped-query attention; no bias and no dropout.

As in Meta's own code, shared keys and values are repeated for their queries before the attention, so they are there in
full. Llama 3.2's scaling of the rotary frequencies changes values only and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import ZooModel
from .jobs import CausalLmJob
from .layers import embedding, merge_heads, split_heads

__all__ = [
    "Llama",
    "LlamaConfig",
    "llama_2_7b",
    "llama_2_13b",
    "llama_2_70b",
    "llama_3_2_1b",
    "llama_3_8b",
    "llama_3_70b",
]


@dataclass(frozen=True)
class LlamaConfig:
    width: int
    depth: int
    heads: int
    key_value_heads: int
    inner: int
    vocabulary: int
    positions: int
    rope_base: float
    tied: bool = False


class RMSNorm(nn.Module):
    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.key_value_heads = config.heads, config.key_value_heads
        shared = config.width // config.heads * config.key_value_heads
        self.query = nn.Linear(config.width, config.width, bias=False)
        self.key = nn.Linear(config.width, shared, bias=False)
        self.value = nn.Linear(config.width, shared, bias=False)
        self.out = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        query = rotate(split_heads(self.query(x), self.heads), cos, sin)
        key = rotate(split_heads(self.key(x), self.key_value_heads), cos, sin)
        value = split_heads(self.value(x), self.key_value_heads)
        times = self.heads // self.key_value_heads
        key, value = repeat_heads(key, times), repeat_heads(value, times)
        return self.out(merge_heads(F.scaled_dot_product_attention(query, key, value, is_causal=True)))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair (first half, second half) of a head by its position's angle."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], -1) * sin


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Each head `times` times in a row; no copy for one."""
    if times == 1:
        return x
    batch, heads, tokens, width = x.shape
    return x[:, :, None].expand(batch, heads, times, tokens, width).reshape(batch, heads * times, tokens, width)


class SwiGLU(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.width)
        self.attention = Attention(config)
        self.forward_norm = RMSNorm(config.width)
        self.feed_forward = SwiGLU(config.width, config.inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.forward_norm(x))


class Llama(nn.Module):
    frequencies: Tensor

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.tokens = embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = RMSNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        if config.tied:
            self.head.weight = self.tokens.weight
        size = config.width // config.heads
        frequencies = config.rope_base ** -(torch.arange(0, size, 2, dtype=torch.float32) / size)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.tokens(input_ids)
        positions = torch.arange(input_ids.shape[1], device=input_ids.device, dtype=torch.float32)
        angles = torch.outer(positions, self.frequencies.float()).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


def _job(entry: ZooModel, config: LlamaConfig) -> CausalLmJob:
    return CausalLmJob(entry, lambda: Llama(config), config.vocabulary, config.positions)


def llama_2_7b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(4096, 32, 32, 32, 11008, 32000, 4096, 1e4))


def llama_2_13b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(5120, 40, 40, 40, 13824, 32000, 4096, 1e4))


def llama_2_70b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(8192, 80, 64, 8, 28672, 32000, 4096, 1e4))


def llama_3_2_1b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(2048, 16, 32, 8, 8192, 128256, 131072, 5e5, tied=True))


def llama_3_8b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(4096, 32, 32, 8, 14336, 128256, 8192, 5e5))


def llama_3_70b(entry: ZooModel) -> CausalLmJob:
    return _job(entry, LlamaConfig(8192, 80, 64, 8, 28672, 128256, 8192, 5e5))
