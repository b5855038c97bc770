"""What is computed with a language model's head: the loss, or how likely each token is; with all logits or in parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from oomcast.errors import BadInput

from ..stand_ins.losses import LigerFusedLinearCrossEntropyLoss, chunked_log_likelihoods

__all__ = ["chunked_loss", "fused_log_likelihoods", "fused_loss", "own_loss"]


def own_loss(model: nn.Module, batch: Any) -> torch.Tensor:
    """As Trainer's compute_loss: the outputs end with the function."""
    output = model(**batch)
    loss = getattr(output, "loss", None)
    if not isinstance(loss, torch.Tensor):
        raise BadInput("the model computes no loss of its own from these inputs; write a job file with loss().")
    return loss


def _before_the_head(model: Any, batch: Any, option: str) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """The head of a language model, what it reads, and what is to come."""
    whole = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = whole.get_output_embeddings()
    if head is None or "labels" not in batch:
        raise BadInput(f"{option} is for language models with a head over the vocabulary.")
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    return head, whole.base_model(**inputs)[0], F.pad(batch["labels"], (0, 1), value=-100)[..., 1:]


def fused_loss(model: Any, batch: Any) -> torch.Tensor:
    head, hidden, labels = _before_the_head(model, batch, "--fused-loss")
    fused = LigerFusedLinearCrossEntropyLoss()
    loss: torch.Tensor = fused(head.weight, hidden.flatten(0, 1), labels.flatten(), getattr(head, "bias", None))
    return loss


def chunked_loss(model: Any, batch: Any, chunks: int) -> torch.Tensor:
    """Logits and cross entropy for some of the tokens at a time; what backward needs of each chunk is kept."""
    head, hidden, labels = _before_the_head(model, batch, "--loss-chunks")
    losses = [
        F.cross_entropy(head(part).float().flatten(0, 1), wanted.flatten(), reduction="sum")
        for part, wanted in zip(hidden.chunk(chunks, dim=1), labels.chunk(chunks, dim=1), strict=True)
    ]
    return torch.stack(losses).sum() / labels.numel()


def fused_log_likelihoods(model: Any, batch: Any, tokens: int | None = None) -> torch.Tensor:
    """Of each of the last tokens of every row (default: of all but the first), as TRL's fused head computes it."""
    head, hidden, labels = _before_the_head(model, {**batch, "use_cache": False}, "--fused-loss")
    tokens = tokens or hidden.shape[1] - 1
    # TRL picks the tokens that count by a mask, which copies them.
    counted = hidden[:, :-1][:, -tokens:].flatten(0, 1).clone()
    wanted = labels[:, :-1][:, -tokens:].flatten()
    likely: torch.Tensor = chunked_log_likelihoods(counted, head.weight, getattr(head, "bias", None), wanted)
    return likely.view(hidden.shape[0], tokens)
