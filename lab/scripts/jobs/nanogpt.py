"""nanoGPT's train.py with its default arguments, as a job: 12 sequences of 1,024 tokens, added up over 40."""

from __future__ import annotations

import importlib
from typing import Any

import torch


def model() -> Any:
    library = importlib.import_module("model")  # nanoGPT's own, from its folder
    return library.GPT(library.GPTConfig(block_size=1024, vocab_size=50304, dropout=0.0, bias=False))


def batch(batch_size: int) -> Any:
    return [torch.randint(0, 50304, (batch_size, 1024)) for _ in range(2)]


_kept: dict[str, torch.Tensor] = {}
"""The script's variable `logits` keeps those of one micro-batch through the forward of the next."""


def loss(model: Any, batch: Any) -> torch.Tensor:
    _kept["logits"], loss = model(batch[0], batch[1])
    return loss


def optimizer(params: Any) -> Any:
    listed = list(params)
    decayed = [{"params": [p for p in listed if (p.dim() >= 2) is wide]} for wide in (True, False)]
    return torch.optim.AdamW(decayed, lr=6e-4, fused=True)
