"""The jobs: how a model of each task is fed and what its loss is.

Batches are made by torch's plain factories, with values in range, and nothing reads a value, so they can be made of
fake tensors. A model's initial values are torch's defaults where training can start from them: memory does not
depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import inputs as _inputs
from .catalogue import ZooModel

__all__ = ["CausalLmJob", "GridJob", "MaskedLmJob", "TabularJob", "TextClassificationJob", "image_classification"]

IGNORED = -100
"""The label that cross entropy leaves out."""

Build = Callable[[], nn.Module]


@dataclass(frozen=True)
class GridJob:
    """Images or volumes with a target made from their batch size and shape."""

    entry: ZooModel
    build: Build
    grid: _inputs.Grid
    target: Callable[[int, tuple[int, ...]], Tensor]
    criterion: Callable[[Any, Tensor], Tensor]

    def model(self) -> nn.Module:
        return self.build()

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """`input_shape` is one sample's: channels, height, width; for volumes channels, depth, height, width."""
        shape = self.grid.shape(self.entry, batch_size, input_shape, seq_len)
        return torch.randn(batch_size, *shape), self.target(batch_size, shape)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return self.criterion(model(x), y)


def image_classification(
    entry: ZooModel,
    build: Build,
    grid: _inputs.Grid,
    criterion: Callable[[Any, Tensor], Tensor] = F.cross_entropy,
) -> GridJob:
    """The 1000 classes of ImageNet and cross entropy."""
    return GridJob(entry, build, grid, lambda batch_size, shape: torch.randint(1000, (batch_size,)), criterion)


@dataclass(frozen=True)
class TabularJob:
    """Rows of numbers in classes, and cross entropy."""

    entry: ZooModel
    build: Build
    classes: int

    def model(self) -> nn.Module:
        return self.build()

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """`input_shape` is one row's, in any arrangement of the values the model takes: 784, or 1x28x28."""
        shape = _inputs.features(self.entry, batch_size, input_shape, seq_len)
        return torch.randn(batch_size, *shape), torch.randint(self.classes, (batch_size,))

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        return F.cross_entropy(model(x), y)


@dataclass(frozen=True)
class _TextJob:
    """Sequences of tokens."""

    entry: ZooModel
    build: Build
    vocabulary: int
    positions: int | None
    """The longest sequence; None where there is no end."""

    def model(self) -> nn.Module:
        return self.build()


@dataclass(frozen=True)
class CausalLmJob(_TextJob):
    """Text whose next token is predicted."""

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> dict[str, Tensor]:
        """`seq_len` is the number of tokens in each sequence; there is no padding. The labels are the tokens."""
        length = _inputs.tokens(self.entry, batch_size, input_shape, seq_len, 2, self.positions)
        ids = torch.randint(self.vocabulary, (batch_size, length))
        return {"input_ids": ids, "labels": ids.clone()}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Cross entropy in fp32 of each position against the next token.

        The labels are shifted, not the logits: the last position gets no label, and the logits are not copied. This
        is what Hugging Face's causal loss does today; nanoGPT shifts while loading, which costs the same.
        """
        logits = model(batch["input_ids"])
        following = F.pad(batch["labels"], (0, 1), value=IGNORED)[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1).float(), following.flatten(), ignore_index=IGNORED)


@dataclass(frozen=True)
class MaskedLmJob(_TextJob):
    """Text with hidden tokens to be found. Logits are made for all positions, as Hugging Face's BERT does."""

    mask_token: int

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> dict[str, Tensor]:
        """`seq_len` is the number of tokens. Each seventh is hidden (BERT hides 15 %); the padding mask is all ones."""
        length = _inputs.tokens(self.entry, batch_size, input_shape, seq_len, 1, self.positions)
        inputs = _padded_text(batch_size, length, self.vocabulary)
        labels = torch.full((batch_size, length), IGNORED)
        labels[:, ::7] = inputs["input_ids"][:, ::7]
        inputs["input_ids"][:, ::7] = self.mask_token
        return {**inputs, "labels": labels}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        """Cross entropy on the hidden tokens."""
        logits = model(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
        return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)


@dataclass(frozen=True)
class TextClassificationJob(_TextJob):
    """Texts in classes, and cross entropy."""

    classes: int

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> dict[str, Tensor]:
        """`seq_len` is the number of tokens, with padding; the padding mask is there and all ones."""
        length = _inputs.tokens(self.entry, batch_size, input_shape, seq_len, 1, self.positions)
        labels = torch.randint(self.classes, (batch_size,))
        return {**_padded_text(batch_size, length, self.vocabulary), "labels": labels}

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        logits = model(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
        return F.cross_entropy(logits, batch["labels"])


def _padded_text(batch_size: int, length: int, vocabulary: int) -> dict[str, Tensor]:
    """What BERT's tokenizer gives."""
    return {
        "input_ids": torch.randint(vocabulary, (batch_size, length)),
        "attention_mask": torch.ones(batch_size, length, dtype=torch.int64),
        "token_type_ids": torch.zeros(batch_size, length, dtype=torch.int64),
    }
