"""BERT as transformers 4.15 ran it on torch 1.10, in January 2022: attention written out, the mask in fp32."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from .old_torch import softmax_of_2022

__all__ = ["BertClassifier"]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)
        self.heads = heads

    def _split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query = self.query(x)
        key = self._split(self.key(x))
        value = self._split(self.value(x))
        query = self._split(query)
        scores = torch.matmul(query, key.transpose(-1, -2))
        scores = scores / math.sqrt(query.shape[-1])
        scores = scores + mask
        weights = softmax_of_2022(scores)
        weights = self.dropout(weights)
        context = torch.matmul(weights, value)
        context = context.permute(0, 2, 1, 3).contiguous()
        return context.view(x.shape)


class _Output(nn.Module):
    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, hidden: Tensor, x: Tensor) -> Tensor:
        hidden = self.dense(hidden)
        hidden = self.dropout(hidden)
        return self.norm(hidden + x)


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.attention_output = _Output(width, width)
        self.intermediate = nn.Linear(width, 4 * width)
        self.output = _Output(4 * width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        attended = self.attention(x, mask)
        attended = self.attention_output(attended, x)
        hidden = functional.gelu(self.intermediate(attended))
        return self.output(hidden, attended)


class BertClassifier(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, vocabulary: int = 30522, positions: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.types = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.classifier = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, seen: Tensor) -> Tensor:
        mask = (1.0 - seen[:, None, None, :].to(self.words.weight.dtype)) * -10000.0
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
        embedded = self.words(tokens) + self.types(torch.zeros_like(tokens))
        embedded = embedded + self.positions(places)
        x = self.dropout(self.norm(embedded))
        for layer in self.layers:
            x = layer(x, mask)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return self.classifier(self.dropout(pooled))
