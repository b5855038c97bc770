"""The two small ones: a multilayer perceptron, and the large LSTM language model of Zaremba et al.

The latter has two layers of 1500 units and a dropout of 0.65 between all layers.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from .catalogue import ZooModel
from .jobs import CausalLmJob, TabularJob

__all__ = ["MLP", "LstmLm", "lstm_lm", "mlp"]

_VOCABULARY = 10_000


class LstmLm(nn.Module):
    """Each batch starts from a state of zeros."""

    def __init__(self, vocabulary: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True, dropout=dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids: Tensor) -> Tensor:
        x, _ = self.lstm(self.dropout(self.words(input_ids)))
        return self.head(self.dropout(x))


def lstm_lm(entry: ZooModel) -> CausalLmJob:
    return CausalLmJob(entry, lambda: LstmLm(_VOCABULARY, 1500, 2, 0.65), _VOCABULARY, positions=None)


class MLP(nn.Module):
    """`widths` goes from the number of inputs to the number of classes; ReLU between."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(torch.flatten(x, 1))


def mlp(entry: ZooModel) -> TabularJob:
    return TabularJob(entry, lambda: MLP((784, 2048, 2048, 2048, 10)), classes=10)
