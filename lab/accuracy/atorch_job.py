"""Llama 2 as DLRover's ATorch example trains it: FSDP's mixed precision, and autocast around the model's forward.

Read from intelligent-machine-learning/dlrover at 3a442b7, which brought the figures: sequences of 4,096 tokens, each
decoder layer recomputed and a unit (atorch/examples/llama2/fsdp_llama2.py, fsdp_llama2_entry.sh); beside autocast, FSDP
gathers and reduces in bf16, too (atorch/auto/model_context.py, "turn on mixed_precision in FSDP"); `outputs` is kept
until the next step has its own. It is ATorch that recomputes the layers, so that transformers does not turn the cache
of keys and values off, which is on by default: `outputs` has those of all layers (`past_key_value` in
atorch/modules/transformer/layers.py). transformers of 2023 made the logits fp32, copied the shifted ones for the loss,
and wrote out the mask for every sample in the type of the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["LENGTH", "AtorchLlamaJob"]

LENGTH = 4096


@dataclass(frozen=True)
class AtorchLlamaJob:
    """The sizes of Llama 2 7B are the defaults of `LlamaConfig`."""

    length: int = LENGTH
    layers: int = 32

    libraries = ("transformers",)

    def model(self) -> Any:
        import transformers

        configuration = transformers.LlamaConfig(num_hidden_layers=self.layers, use_cache=False)
        return transformers.LlamaForCausalLM._from_config(configuration)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(1000, (batch_size, self.length))
        return {"input_ids": tokens, "labels": tokens.clone()}

    def loss(self, model: Any, batch: Any) -> Any:
        import torch
        from torch.nn import functional

        tokens = batch["input_ids"]
        model.mask = None
        model.mask = torch.empty(len(tokens), 1, self.length, self.length, dtype=torch.bfloat16, device=tokens.device)
        cache: list[Any] = []
        cached = [module for name, module in model.named_modules() if name.endswith(("k_proj", "v_proj"))]
        hooks = [
            module.register_forward_hook(lambda module, given, made: cache.append(made.detach())) for module in cached
        ]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(input_ids=tokens).logits.float()
            shifted = logits[..., :-1, :].contiguous()
            loss = functional.cross_entropy(shifted.flatten(0, 1), batch["labels"][..., 1:].flatten())
        for hook in hooks:  # before the layers are run once more
            hook.remove()
        model.outputs = logits, cache
        return loss
