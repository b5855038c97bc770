"""Decoders as litgpt fine-tunes them: all of their weights, LoRA's, or adapter v2's. No framework is imported here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = ["SHAPES", "DecoderJob", "Lora", "Shape"]


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder and how its blocks are wired."""

    layers: int
    heads: int
    width: int
    vocabulary: int
    """Rows of the embedding and of the head, padding included."""
    hidden: int
    groups: int = 0
    """Heads of keys and values; 0: as many as of queries."""
    head_size: int = 0
    """0: the width shared by the heads."""
    rotary: float = 1.0
    """The share of each head that is rotated."""
    parallel: bool = False
    """Whether attention and MLP read the same input."""
    shared_norm: bool = False
    bias: bool = False
    head_bias: bool = False
    norm: Literal["layer", "rms", "rms-float", "rms-float-out"] = "rms"
    """`rms`: in the weights' type; `rms-float`: in fp32, scaled in the weights' type; `rms-float-out`: all in fp32."""
    mlp: Literal["gelu", "silu-gated", "gelu-gated"] = "silu-gated"
    scaled_embedding: bool = False

    @property
    def kv_heads(self) -> int:
        return self.groups or self.heads

    @property
    def per_head(self) -> int:
        return self.head_size or self.width // self.heads


@dataclass(frozen=True)
class Lora:
    rank: int
    dropout: float
    queries: bool = True
    keys: bool = False
    values: bool = True
    projection: bool = False
    mlp: bool = False
    head: bool = False


_NEOX = Shape(16, 32, 4096, 50688, 16384, rotary=0.25, parallel=True, bias=True, norm="layer", mlp="gelu")
_LLAMA = Shape(32, 32, 4096, 32000, 11008)
SHAPES: dict[str, Shape] = {
    "stablelm-base-alpha-3b": _NEOX,
    "llama-2-7b": _LLAMA,
    "llama-2-13b": replace(_LLAMA, layers=40, heads=40, width=5120, hidden=13824),
    "falcon-40b": Shape(60, 128, 8192, 65024, 32768, groups=8, parallel=True, norm="layer", mlp="gelu"),
    "phi-2": Shape(32, 32, 2560, 51200, 10240, rotary=0.4, parallel=True, shared_norm=True, bias=True, head_bias=True,
                   norm="layer", mlp="gelu"),
    "phi-3-mini-4k-instruct": Shape(32, 32, 3072, 32064, 8192),
    "mistral-7b": Shape(32, 32, 4096, 32000, 14336, groups=8),
    "tiny-llama": Shape(22, 32, 2048, 32000, 5632, groups=4),
    "llama-3.1-8b": Shape(32, 32, 4096, 128256, 14336, groups=8),
    "llama-3.2-1b": Shape(16, 32, 2048, 128256, 8192, groups=8),
    "gemma-2b": Shape(18, 8, 2048, 256000, 16384, groups=1, mlp="gelu-gated", scaled_embedding=True),
    "gemma-7b": Shape(28, 16, 3072, 256000, 24576, head_size=256, mlp="gelu-gated", scaled_embedding=True),
}  # fmt: skip


@dataclass(frozen=True)
class DecoderJob:
    shape: Shape
    length: int
    lora: Lora | None = None
    adapter: bool = False
    """Adapter v2: scales, biases and prompts are trained."""
    bf16: bool = True
    """Whether the weights themselves are bfloat16."""
    quantization: str = ""
    """`nf4` or `nf4-dq`: bitsandbytes holds every linear layer in 4 bits, the head too, as Fabric's plugin has it."""

    def model(self) -> Any:
        import torch

        from .decoder_model import Decoder, quantise

        # Fabric builds the model on the GPU and in its own type at once.
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16 if self.bf16 else torch.float32)
        try:
            decoder = Decoder(self.shape, self.length, self.lora, self.adapter)
            if self.quantization:
                quantise(decoder, double=self.quantization == "nf4-dq")
            return decoder
        finally:
            torch.set_default_dtype(before)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.shape.vocabulary, (batch_size, self.length))
        return tokens, tokens.clone()

    def loss(self, model: Any, batch: Any) -> Any:
        """In chunks of 128 tokens; where parts are trained, the head runs in such chunks too.

        Fabric makes every output fp32, and the script's `logits` live until the next step's take their place.
        """
        import torch
        from torch.nn import functional

        tokens, targets = batch
        targets = targets[..., 1:]
        if self.lora is None and not self.adapter:
            model.logits = model(tokens).float()
            logits = model.logits[..., :-1, :]
            logits = logits.reshape(-1, logits.size(-1))
            pieces = zip(logits.split(128), targets.reshape(-1).split(128), strict=True)
        else:
            chunks = [chunk.float() for chunk in model(tokens, 128)]
            chunks[-1] = chunks[-1][..., :-1, :]
            model.logits = chunks
            flat = [chunk.reshape(-1, chunk.size(-1)) for chunk in chunks]
            pieces = zip(flat, [t.reshape(-1) for t in targets.split(128, dim=1)], strict=True)
        losses = [functional.cross_entropy(logit, target, reduction="none") for logit, target in pieces]
        return torch.cat(losses).mean()

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        return optim.AdamW([parameter for parameter in parameters if parameter.requires_grad], lr=3e-4)
