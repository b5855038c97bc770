"""Llama 2 as DLRover's ATorch example trains it: FSDP over fp32 parameters, with autocast around the model's forward.

Read from intelligent-machine-learning/dlrover, atorch/examples/llama2 (fsdp_llama2.py, fsdp_llama2_entry.sh) and
atorch/auto/opt_lib/amp_optimization.py: sequences of 4,096 tokens, bf16 by `autocast` and not by FSDP's own mixed
precision, each decoder layer recomputed and a unit, `outputs` kept until the next step has its own. transformers of
2023 made the logits fp32 and copied the shifted ones for the loss.
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

        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = model(input_ids=batch["input_ids"]).logits.float()
            shifted = logits[..., :-1, :].contiguous()
            loss = functional.cross_entropy(shifted.flatten(0, 1), batch["labels"][..., 1:].flatten())
        model.outputs = logits
        return loss
