"""Language models as the measured scripts trained them. No framework is imported before capture."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BertJob", "GptJob", "HfJob", "TorchaoLlamaJob"]


@dataclass(frozen=True)
class HfJob:
    """A model class of transformers made from a configuration."""

    model_class: str
    config_class: str
    settings: tuple[tuple[str, Any], ...]
    length: int
    attention: Literal["sdpa", "eager"] = "sdpa"
    bf16: bool = False
    """Whether the weights themselves are bfloat16."""
    labels: Literal["tokens", "class"] = "tokens"

    libraries = ("transformers",)

    def model(self) -> Any:
        import torch
        import transformers

        config = getattr(transformers, self.config_class)(**dict(self.settings), attn_implementation=self.attention)
        dtype = torch.bfloat16 if self.bf16 else torch.float32
        return getattr(transformers, self.model_class)._from_config(config, dtype=dtype)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(1000, (batch_size, self.length))
        batch = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        if self.labels == "class":
            return {**batch, "labels": torch.randint(2, (batch_size,))}
        return {**batch, "labels": tokens.clone()}


@dataclass(frozen=True)
class GptJob:
    """GPT-124M of rasbt/LLMs-from-scratch: every layer its own, or torch's layer norm and GELU."""

    own_layers: bool
    mask_buffer: bool
    bf16: bool
    fused: bool
    length: int = 1024
    vocabulary: int = 50257

    def model(self) -> Any:
        import torch

        from .gpt_model import Gpt

        model = Gpt(self.vocabulary, self.length, self.own_layers, self.mask_buffer)
        return model.to(torch.bfloat16) if self.bf16 else model

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(self.vocabulary, (batch_size, self.length))
        return tokens, torch.randint(self.vocabulary, (batch_size, self.length))

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        logits = model(batch[0])
        return functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten())

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        return optim.AdamW(parameters, lr=5e-4, weight_decay=0.1, fused=self.fused)


@dataclass(frozen=True)
class BertJob:
    """A classifier of texts, with the transformers and torch of January 2022."""

    width: int
    layers: int
    heads: int
    length: int

    def model(self) -> Any:
        from .bert_model import BertClassifier

        return BertClassifier(self.width, self.layers, self.heads)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(1000, (batch_size, self.length))
        return tokens, torch.ones_like(tokens), torch.randint(2, (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        tokens, seen, labels = batch
        return functional.cross_entropy(model(tokens, seen), labels)


@dataclass(frozen=True)
class TorchaoLlamaJob:
    """torchao's script for training with int8 weights: a Llama of transformers, and the whole data set on the GPU."""

    length: int
    int8: bool
    compiled: bool = False
    """Model and loss as one function."""

    libraries = ("transformers",)

    def model(self) -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        config = LlamaConfig(
            hidden_size=1536,
            intermediate_size=6144,
            num_hidden_layers=24,
            num_attention_heads=24,
            max_position_embeddings=self.length,
            use_cache=False,
        )
        model: Any = LlamaForCausalLM(config)
        model = model.bfloat16().cuda()
        if self.int8:
            training = importlib.import_module("torchao.prototype.quantized_training")
            quantise = importlib.import_module("torchao.quantization").quantize_
            quantise(model, training.int8_weight_only_quantized_training())
        model.tokens = torch.empty(_TINY_STORIES, dtype=torch.uint16, device="cuda")
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randint(1000, (batch_size, self.length))

    def loss(self, model: Any, batch: Any) -> Any:
        import torch

        return (torch.compile(_loss_of_2024) if self.compiled else _loss_of_2024)(model, batch)

    def optimizer(self, parameters: Any) -> Any:
        return importlib.import_module("torchao.optim")._AdamW(parameters, lr=3e-4)


def _loss_of_2024(model: Any, batch: Any) -> Any:
    """As transformers computed it until 4.45: in fp32, with a copy of the shifted logits."""
    from torch.nn import functional

    logits = model(input_ids=batch).logits.float()
    shifted = logits[..., :-1, :].contiguous()
    return functional.cross_entropy(shifted.view(-1, shifted.size(-1)), batch[..., 1:].contiguous().view(-1))


_TINY_STORIES = 580_000_000
"""Tokens of TinyStoriesV2-GPT4-train.txt (2.2 GB of English) with Llama 2's tokenizer, give or take 4 %: 0.4 % of the
rows' figures."""
