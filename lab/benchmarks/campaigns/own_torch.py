"""A person's own job, as a campaign takes it: a small text encoder under PyTorch.

The parameters are what is written here as plain values: arguments of `model` and `batch` with a default.
"""

import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(8_000, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 8_000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.tokens(x)))


def model(width: int = 320, layers: int = 5) -> nn.Module:
    return Encoder(width, layers)


def batch(batch_size: int, seq_len: int = 128) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, 8_000, (batch_size, seq_len + 1))
    return tokens[:, :-1], tokens[:, 1:]


def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    x, y = batch
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
