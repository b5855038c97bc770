"""Layers that several families share.

Convolutional ones have `conv_norm` (convolution, batch norm, activation). Transformers have their heads and their
feed-forward layer; GPT-2 and ViT also the block whose norms stand before attention and feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["FeedForward", "PreNormBlock", "conv_norm", "embedding", "merge_heads", "split_heads"]

Gelu = Literal["none", "tanh"]


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int | tuple[int, int],
    stride: int = 1,
    padding: int | tuple[int, int] | None = None,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Without `padding` the size is kept (for stride 1). The convolution has no bias: batch norm has one."""
    sides = (kernel, kernel) if isinstance(kernel, int) else kernel
    if padding is None:
        padding = (sides[0] // 2, sides[1] // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, sides, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


def embedding(count: int, width: int) -> nn.Embedding:
    """Small initial values, so that a head tied to it starts with small logits."""
    table = nn.Embedding(count, width)
    nn.init.normal_(table.weight, std=0.02)
    return table


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, tokens, width) to (batch, heads, tokens, width of a head)."""
    batch, tokens, width = x.shape
    return x.view(batch, tokens, heads, width // heads).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """The inverse of `split_heads`."""
    batch, heads, tokens, width = x.shape
    return x.transpose(1, 2).reshape(batch, tokens, heads * width)


class SelfAttention(nn.Module):
    """Queries, keys and values from one linear layer."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        dropout = self.dropout if self.training else 0.0
        x = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=self.causal)
        return self.out(merge_heads(x))


class FeedForward(nn.Sequential):
    def __init__(self, width: int, inner: int, gelu: Gelu = "none") -> None:
        super().__init__(nn.Linear(width, inner), nn.GELU(gelu), nn.Linear(inner, width))


class PreNormBlock(nn.Module):
    def __init__(
        self, width: int, heads: int, dropout: float, causal: bool, gelu: Gelu = "none", eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.attention = SelfAttention(width, heads, dropout, causal)
        self.forward_norm = nn.LayerNorm(width, eps=eps)
        self.feed_forward = FeedForward(width, 4 * width, gelu)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.feed_forward(self.forward_norm(x)))
