"""Decoders as torchtune's recipes for one GPU fine-tune them. No framework is imported here."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

from .decoder_jobs import Lora, Shape

__all__ = ["TUNE_SHAPES", "TuneJob"]

TUNE_SHAPES: dict[str, tuple[Shape, bool]] = {
    "llama2-7b": (Shape(32, 32, 4096, 32000, 11008), False),
    "llama3-8b": (Shape(32, 32, 4096, 128256, 14336, groups=8), False),
    "llama 3.1 8b": (Shape(32, 32, 4096, 128256, 14336, groups=8), False),
    "llama 3.2 3b": (Shape(28, 24, 3072, 128256, 8192, groups=8), True),
    "llama 3.2 1b": (Shape(16, 32, 2048, 128256, 8192, groups=8), True),
}
"""Sizes, and whether the head is the embedding."""


@dataclass(frozen=True)
class TuneJob:
    shape: Shape
    tied: bool
    length: int
    lora: Lora | None = None
    checkpointing: bool = False
    recipe: Literal["2024-04", "2024-12"] = "2024-12"
    """The recipes of spring 2024 copy the shifted logits and keep them until the next ones are there; those of December
    shift the labels and drop the logits before backward."""
    packed: bool = False
    """Whether samples share a row: flex attention keeps them apart."""
    compiled: bool = False
    """Each block, and the loss of a piece."""
    pieces: int = 0
    """Of the sequence, for head and loss; 0: the whole at once, which the recipe does not compile (pytorch/torchtune at
    1814feb, full_finetune_single_device.py, drops what compile_loss returns)."""
    offloading: bool = False
    """Whether what the blocks save waits in the host's memory."""

    def model(self) -> Any:
        import torch

        from .tune_model import TuneDecoder

        # The recipes build the model on the GPU and in bf16 at once.
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = TuneDecoder(self.shape, self.lora, self.tied, self.checkpointing, self.packed)
        finally:
            torch.set_default_dtype(before)
        for layer in model.layers if self.compiled else ():
            layer.compile()
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.shape.vocabulary, (batch_size, self.length))
        return tokens, tokens.clone()

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        tokens, labels = batch
        if self.recipe == "2024-12":
            return self._loss_of_december(model, tokens, labels)
        logits = model(tokens)
        model.kept = logits = logits[..., :-1, :].contiguous()
        return functional.cross_entropy(logits.transpose(1, 2), labels[..., 1:].contiguous())

    def _loss_of_december(self, model: Any, tokens: Any, labels: Any) -> Any:
        import torch
        from torch.nn import functional

        from .tune_model import in_pieces, off_the_gpu, samples_mask

        mask = samples_mask(torch.zeros_like(tokens)) if self.packed else None
        places = torch.zeros_like(tokens) if self.packed else None
        ignored = torch.full((labels.shape[0], 1), -100, device=labels.device)
        labels = torch.hstack((labels[..., 1:], ignored))
        with off_the_gpu() if self.offloading else contextlib.nullcontext():
            states = model.states(tokens, mask, places)
        if self.pieces:
            cross_entropy = torch.compile(_summed) if self.compiled else _summed
            return in_pieces(model, states, labels, self.pieces, cross_entropy)
        logits = model.head(states).float()
        return functional.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))


def _summed(logits: Any, labels: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(logits.float(), labels, reduction="sum")
