"""GPT-2: learned positions, norms before each half of a block, a head tied to the token embeddings, dropout 0.1.

The activation is torch's own tanh GELU; implementations that spell it out in Python keep more for backward.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .catalogue import ZooModel
from .jobs import CausalLmJob
from .layers import PreNormBlock, embedding

__all__ = ["GPT2", "gpt2", "gpt2_large", "gpt2_medium", "gpt2_xl"]

_VOCABULARY = 50257
_POSITIONS = 1024


class GPT2(nn.Module):
    def __init__(
        self,
        width: int,
        depth: int,
        heads: int,
        vocabulary: int = _VOCABULARY,
        positions: int = _POSITIONS,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens = embedding(vocabulary, width)
        self.positions = embedding(positions, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(
            *(PreNormBlock(width, heads, dropout, causal=True, gelu="tanh") for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.dropout(self.tokens(input_ids) + self.positions(positions))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


def _job(entry: ZooModel, width: int, depth: int, heads: int) -> CausalLmJob:
    return CausalLmJob(entry, lambda: GPT2(width, depth, heads), _VOCABULARY, _POSITIONS)


def gpt2(entry: ZooModel) -> CausalLmJob:
    return _job(entry, width=768, depth=12, heads=12)


def gpt2_medium(entry: ZooModel) -> CausalLmJob:
    return _job(entry, width=1024, depth=24, heads=16)


def gpt2_large(entry: ZooModel) -> CausalLmJob:
    return _job(entry, width=1280, depth=36, heads=20)


def gpt2_xl(entry: ZooModel) -> CausalLmJob:
    return _job(entry, width=1600, depth=48, heads=25)
