"""GPUMemNet's training scripts as jobs. Nothing here imports a framework until a job is captured."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oomcast.methods.gpumemnet.published_plans import Block

__all__ = ["CNN_STEPS", "CnnJob", "MlpJob", "TransformerJob"]

CNN_SAMPLES = 4096
"""An epoch; its last batch is smaller where they cannot be divided evenly."""
CNN_LAST_STEP = 2
CNN_STEPS = 5
"""Two steps, the end of an epoch, and two of the next."""
CNN_SUMMARY_BATCH = 2


@dataclass(frozen=True)
class MlpJob:
    widths: tuple[int, ...]
    activation: str
    batch_norm: bool
    dropout: float | None
    softmax: bool

    def model(self) -> Any:
        from oomcast.methods.gpumemnet.published_models import mlp

        return mlp(self.widths, self.activation, self.batch_norm, self.dropout, self.softmax)

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, self.widths[0]), torch.randint(self.widths[-1], (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        return _cross_entropy(model, batch)


@dataclass(frozen=True)
class CnnJob:
    plan: tuple[Block, ...]
    channels: int
    size: int
    classes: int
    activation: str
    batch_norm: bool
    dropout: float | None
    batch_size: int
    _steps: Iterator[int] = field(default_factory=itertools.count, repr=False, compare=False)

    @property
    def last_batch(self) -> int:
        """What remains of an epoch for its last step."""
        return CNN_SAMPLES % self.batch_size or self.batch_size

    def model(self) -> Any:
        import torch

        from oomcast.methods.gpumemnet.published_models import Cnn

        model = Cnn(self.plan, self.classes, self.activation, self.batch_norm, self.dropout).cuda()
        # torchsummary prints the layers before training: two images, training mode, nothing kept. The blocks that this
        # leaves in the cache decide where later ones go.
        model(torch.randn(CNN_SUMMARY_BATCH, self.channels, self.size, self.size).cuda())
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        size = self.last_batch if next(self._steps) == CNN_LAST_STEP else batch_size
        images = torch.randn(size, self.channels, self.size, self.size)
        return images, torch.randint(self.classes, (size,))

    def loss(self, model: Any, batch: Any) -> Any:
        return _cross_entropy(model, batch)


@dataclass(frozen=True)
class TransformerJob:
    classes: int
    width: int
    layers: int
    heads: int
    hidden: int
    length: int
    vocabulary: int
    batch_size: int
    """Two forward passes of this size come before training; their input is kept."""

    def model(self) -> Any:
        import torch

        from .gpumemnet_transformer import TransformerClassifier

        model = TransformerClassifier(
            self.vocabulary, self.width, self.layers, self.heads, self.hidden, self.length, self.classes
        ).cuda()
        mock = torch.randint(self.vocabulary, (self.batch_size, self.length)).cuda()
        model(mock)
        model(mock)
        model.mock = mock
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.vocabulary, (batch_size, self.length))
        return tokens, torch.randint(self.classes, (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        return _cross_entropy(model, batch)


def _cross_entropy(model: Any, batch: Any) -> Any:
    """The script keeps the output until the next step's takes its place."""
    from torch.nn import functional

    model.last_output = model(batch[0])
    return functional.cross_entropy(model.last_output, batch[1])
