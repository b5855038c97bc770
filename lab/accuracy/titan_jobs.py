"""Llama 3 as torchtitan trains it: its operators, its selective checkpointing, its loss, its units of FSDP2.

Read from pytorch/torchtitan at 9dec370 (models/llama/model.py, parallelisms/parallelize_llama.py, train.py) and written
again: RMSNorm in fp32 by hand, rotary positions as complex numbers, repeated keys and values, logits made fp32 for the
loss and let go before backward, gradients clipped.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

__all__ = ["SHAPES", "TitanJob", "TitanShape", "recomputed"]


@dataclass(frozen=True)
class TitanShape:
    width: int
    depth: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int = 128_256


SHAPES = {
    "8B": TitanShape(4096, 32, 32, 8, 14336),
    "70B": TitanShape(8192, 80, 64, 8, 28672),
    "405B": TitanShape(16384, 126, 128, 8, 53248),
}


@dataclass(frozen=True)
class TitanJob:
    """A job object of oomcast. `recompute`: `selective` keeps the costly operators but every second product, `full`
    keeps a block's input alone, `none` keeps all."""

    shape: TitanShape
    length: int
    recompute: str

    def model(self) -> Any:
        from .titan_model import TitanLlama

        model = TitanLlama(self.shape, self.length)
        if self.recompute != "none":
            for name, block in model.layers.named_children():
                model.layers.register_module(name, recomputed(block, self.recompute))
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.shape.vocabulary, (batch_size, self.length))
        return tokens, tokens.clone()

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        tokens, labels = batch
        logits = model(tokens)
        return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        return optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)


def recomputed(block: Any, how: str) -> Any:
    """The block under checkpointing as torchtitan wraps it: `full` or `selective`."""
    import torch
    from torch._higher_order_ops import flex_attention
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    if how == "full":
        return checkpoint_wrapper(block, preserve_rng_state=False)
    aten = torch.ops.aten
    kept = {
        aten.mm.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_flash_attention.default,
        # Of those that the list of 2026 has beside them: torchtitan at b5bcd76, distributed/activation_checkpoint.py.
        aten._scaled_dot_product_cudnn_attention.default,
        flex_attention,
        torch.ops._c10d_functional.reduce_scatter_tensor.default,
    }

    def contexts() -> Any:
        counts: defaultdict[bool, int] = defaultdict(int)

        def policy(context: Any, operator: Any, *args: Any, **options: Any) -> Any:
            if operator == aten.mm.default:
                counts[context.is_recompute] += 1
            every_second = operator == aten.mm.default and counts[context.is_recompute] % 2 == 0
            keep = operator in kept and not every_second
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return checkpoint_wrapper(block, context_fn=contexts, preserve_rng_state=False)
