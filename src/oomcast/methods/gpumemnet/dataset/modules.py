"""The networks in torch, built where they are captured or run. GPUMemNet's own are those of its rows."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..published_models import ACTIVATIONS, Cnn, mlp
from .network import Network, cnn_plan, dense_growth, feed_forward, plain_widths

__all__ = ["build", "example"]


def build(network: Network) -> nn.Module:
    if network.kind == "transformer":
        return Transformer(network)
    if network.kind == "cnn":
        plan = cnn_plan(network)
        return Cnn(plan, network.output_size, network.activation, network.batch_norm, network.dropout)
    if network.architecture == "residual":
        return ResidualMlp(network)
    if network.architecture == "dense":
        return DenseMlp(network)
    return mlp(plain_widths(network), network.activation, network.batch_norm, network.dropout, softmax=False)


def example(network: Network, batch_size: int) -> tuple[Tensor, Tensor]:
    """A batch of random inputs and classes for the network."""
    size = network.input_size
    classes = torch.randint(network.output_size, (batch_size,))
    if network.kind == "transformer":
        return torch.randint(network.vocabulary or 1, (batch_size, size)), classes
    shape = (network.channels or 1, size, size) if network.kind == "cnn" else (size,)
    return torch.randn(batch_size, *shape), classes


def _layer(network: Network, inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, outputs)]
    if network.batch_norm:
        layers.append(nn.BatchNorm1d(outputs))
    layers.append(ACTIVATIONS[network.activation]())
    if network.dropout is not None:
        layers.append(nn.Dropout(network.dropout))
    return nn.Sequential(*layers)


class ResidualMlp(nn.Module):
    """Layers of one width; a sum around every two that follow the first."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        width = network.width
        self.first = _layer(network, network.input_size, width)
        self.layers = nn.ModuleList(_layer(network, width, width) for _ in range(network.depth - 1))
        self.last = nn.Linear(width, network.output_size)

    def forward(self, x: Tensor) -> Tensor:
        x = before = self.first(x)
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index % 2 == 1:
                x = before = x + before
        return self.last(x)


class DenseMlp(nn.Module):
    """Every layer reads all that the layers before it put out."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        width, growth = network.width, dense_growth(network)
        self.first = _layer(network, network.input_size, width)
        self.layers = nn.ModuleList(_layer(network, width + i * growth, growth) for i in range(network.depth - 1))
        self.last = nn.Linear(width + (network.depth - 1) * growth, network.output_size)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.first(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        return self.last(torch.cat(features, 1))


class TokenBatchNorm(nn.BatchNorm1d):
    """Batch norm over the tokens of all sequences, where layer norm would stand."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def _encoder_layer(network: Network, hidden: int) -> nn.Module:
    layer = nn.TransformerEncoderLayer(
        network.width,
        network.heads or 1,
        hidden,
        network.dropout or 0.0,
        activation=ACTIVATIONS[network.activation](),
        batch_first=True,
    )
    if network.batch_norm:
        for name in ("norm1", "norm2"):
            setattr(layer, name, TokenBatchNorm(network.width))
    if network.dropout is None:
        for name in ("dropout", "dropout1", "dropout2"):
            setattr(layer, name, nn.Identity())
    return layer


class Transformer(nn.Module):
    """Embedding and learned positions, encoder layers, the mean over the tokens, a classifier.

    `residual`: a sum around every two layers, besides those inside them. `dense`: before every layer but the first, a
    linear layer reads all that came before.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        width = network.width
        self.architecture = network.architecture
        self.embedding = nn.Embedding(network.vocabulary or 1, width)
        self.positions = nn.Parameter(torch.zeros(1, network.input_size, width))
        self.layers = nn.ModuleList(_encoder_layer(network, hidden) for hidden in feed_forward(network))
        joins = network.depth - 1 if network.architecture == "dense" else 0
        self.joins = nn.ModuleList(nn.Linear((i + 2) * width, width) for i in range(joins))
        self.last = nn.Linear(width, network.output_size)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self._encoded(self.embedding(tokens) + self.positions)
        return self.last(x.mean(dim=1))

    def _encoded(self, x: Tensor) -> Tensor:
        if self.architecture == "dense":
            return self._densely_encoded(x)
        before = x
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if self.architecture == "residual" and index % 2 == 1:
                x = before = x + before
        return x

    def _densely_encoded(self, x: Tensor) -> Tensor:
        features = [x, self.layers[0](x)]
        for join, layer in zip(self.joins, list(self.layers)[1:], strict=True):
            features.append(layer(join(torch.cat(features, 2))))
        return features[-1]
