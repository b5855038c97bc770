"""The Transformer of GPUMemNet's data set, written after its generator (itu-rad/GPUMemNet, NeuroNetGen_scripts)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["TransformerClassifier"]


class TransformerClassifier(nn.Module):
    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, hidden: int, length: int, classes: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positional_encoding = nn.Parameter(torch.zeros(1, length, width))
        layer = nn.TransformerEncoderLayer(width, heads, hidden, 0.1, batch_first=True)
        self.model = nn.TransformerEncoder(layer, layers)
        self.fc_out = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x) + self.positional_encoding
        x = self.model(x)
        x = x.mean(dim=1)
        return self.fc_out(x)
