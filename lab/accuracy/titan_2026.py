"""Qwen3 and Llama 3 as torchtitan of 2026 trains them: FSDP2 in bf16, compiled blocks, a loss in pieces, fused AdamW.

Read from pytorch/torchtitan at e011c93 (models/qwen3, models/common, components/loss.py, distributed/compile.py), a
commit of the runs of Qwen3 14B themselves, and at bcc0929, which brought the tables of nvfp4.md, and written again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .titan_jobs import recomputed

__all__ = ["LLAMA3", "QWEN3", "TitanDecoderJob", "TitanDecoderShape"]


@dataclass(frozen=True)
class TitanDecoderShape:
    width: int
    depth: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    per_head: int = 128
    normed_heads: bool = True
    fused_qkv: bool = False
    """One projection for queries, keys and values: torchtitan's Llama, and its Qwen3 from 3396a4b of June 2026 on."""


QWEN3 = {
    "8b": TitanDecoderShape(4096, 36, 32, 8, 12288, 151_936),
    "14b": TitanDecoderShape(5120, 40, 40, 8, 17408, 151_936),
    "32b": TitanDecoderShape(5120, 64, 64, 8, 25600, 151_936),
}


LLAMA3 = {"8B": TitanDecoderShape(4096, 32, 32, 8, 14336, 128_256, normed_heads=False, fused_qkv=True)}


@dataclass(frozen=True)
class TitanDecoderJob:
    """A job object of oomcast, for several GPUs by FSDP2."""

    shape: TitanDecoderShape
    length: int
    pieces: int
    """Of the sequence, for the head and the loss."""
    compiled: tuple[str, ...] = ()
    """What torch.compile is called for: `model` is each block, `loss`, or parts of each block (`feed_forward`)."""
    bf16: bool = True
    prefetches: bool = True
    recompute: str = "none"
    """`full` and `selective` as in `titan_jobs`."""
    memory_budget: float = 1.0
    """Of what the compiler would keep for backward."""
    attention: str = "sdpa"
    reshards: bool = True
    """Whether the blocks' parameters are let go between forward and backward."""
    embeds_apart: bool = False
    """Whether the embedding is a unit of its own and the last norm one with the head, as in torchtitan itself
    (distributed/fsdp.py at bcc0929); the branch of e011c93 shards the head alone."""

    def model(self) -> Any:
        import torch
        import torch._functorch.config
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        from .titan_decoder import TitanDecoder

        if self.memory_budget < 1:
            torch._functorch.config.activation_memory_budget = self.memory_budget
        model = TitanDecoder(self.shape, self.length, self.attention)
        if self.bf16:
            table = model.table
            model.to(torch.bfloat16)
            model.table = table
        for name, block in model.layers.named_children():
            if self.recompute != "none":
                model.layers.register_module(name, recomputed(block, self.recompute))
        for block in model.layers.values():
            for part in self._parts(block):
                part.compile()
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if self.embeds_apart:
            fully_shard(model.tok_embeddings, mp_policy=policy)
            fully_shard([model.norm, model.lm_head], mp_policy=policy, reshard_after_forward=False)
        else:
            fully_shard(model.lm_head, mp_policy=policy)
        return model

    def _parts(self, block: Any) -> list[Any]:
        if "model" in self.compiled:
            return [block]
        parts = [block.feed_forward] if "feed_forward" in self.compiled else []
        return parts + ([block.attention_norm, block.ffn_norm] if "norms" in self.compiled else [])

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.shape.vocabulary, (batch_size, self.length))
        return tokens, tokens.clone(), torch.arange(self.length).expand(batch_size, -1).clone()

    def loss(self, model: Any, batch: Any) -> Any:
        import torch

        from .titan_decoder import chunked_loss, prefetch_neighbours

        if self.prefetches:
            prefetch_neighbours(model)
        for block in () if self.reshards else model.layers.values():
            block.set_reshard_after_forward(False)
        tokens, labels, positions = batch
        cross_entropy = torch.compile(_cross_entropy) if "loss" in self.compiled else _cross_entropy
        return chunked_loss(model, model(tokens, positions), labels, self.pieces, cross_entropy)

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        return optim.AdamW(parameters, lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    from torch.nn import functional

    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1), reduction="sum")
