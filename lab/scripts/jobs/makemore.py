"""makemore.py with its default arguments, as a job: the transformer on 32 names."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def model() -> Any:
    library = importlib.import_module("makemore")
    settings = {"vocab_size": 27, "block_size": 16, "n_layer": 4, "n_head": 4, "n_embd": 64, "n_embd2": 64}
    return library.Transformer(library.ModelConfig(**settings))


def batch(batch_size: int) -> Any:
    return [torch.randint(0, 27, (batch_size, 16)) for _ in range(2)]


def loss(model: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = model(batch[0], batch[1])[1]
    return loss
