"""Generation: the real model with transformers' own cache classes, the prompt at once (prefill), then token by token
(decode). `generate()` itself decides by values, which are not known here, so its loop is written out.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from ...errors import BadInput
from ...spec import Objective, Workload
from ...trace import Category, Phase
from .machine import VirtualGpu
from .quantised_cache import quantised_cache, shapes_of_states

__all__ = ["generate"]

_FOLLOWED = 16
"""Of many new tokens, as many steps are followed; between them the cache grows by what the others add."""


def generate(virtual: VirtualGpu, model: Any, batch: Any, workload: Workload, step: int | None = None) -> Any:
    """New tokens for each prompt of the batch, which is on the GPU already; within this step of a training.

    For PPO the scores of all words for every token are returned, too, as its trainer keeps them.
    """
    try:
        from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
    except ModuleNotFoundError:
        raise BadInput("generating is for models of transformers: pip install 'oomcast[hf]'") from None
    core = model.get_base_model() if hasattr(model, "get_base_model") else model
    if not isinstance(core, PreTrainedModel):
        raise BadInput("generating is for models of transformers (hf:NAME); use --phase inference.")
    takes = inspect.signature(core.forward).parameters
    if "past_key_values" not in takes and "cache_params" not in takes:
        raise BadInput(f"{type(core).__name__} keeps no cache, so it does not generate; use --phase inference.")
    batch = {name: value for name, value in batch.items() if name not in ("labels", "return_loss", "decoder_input_ids")}
    virtual.label(batch, Category.INPUT)
    virtual.enter(Phase.PREFILL, step or 0)
    decoder_config = core.config.get_text_config(decoder=True)
    cache: Any = DynamicCache(config=decoder_config)
    if workload.kv_cache is not None:
        if core.config.is_encoder_decoder or "past_key_values" not in takes:
            raise BadInput(f"--kv-cache is for decoders; {type(core).__name__} keeps other caches.")
        cache = quantised_cache(decoder_config, workload.kv_cache)
        virtual.ledger.assume(f"keys and values are kept as {workload.kv_cache}, as transformers' QuantizedCache does")
    if core.config.is_encoder_decoder:
        cache = EncoderDecoderCache(cache, DynamicCache(config=decoder_config))
    steps = _Steps(model, core, batch, cache, takes, keeps_scores=workload.objective is Objective.PPO)
    tokens = steps.prefill()
    new = workload.new_tokens - 1
    followed = min(new, _FOLLOWED)
    if followed < new:
        virtual.ledger.assume(f"{followed} of {new:,} steps after the prompt are followed; the cache grows as by all")
    done = 0
    for number in range(followed):
        virtual.enter(Phase.DECODE, number if step is None else step)
        target = (number + 1) * new // followed
        steps.grow(target - done - 1)
        tokens = steps.decode(tokens)
        done = target
    return steps.kept_scores()


class _Steps:
    """One generation under way."""

    def __init__(
        self, model: Any, core: Any, batch: dict[str, Any], cache: Any, takes: Any, keeps_scores: bool
    ) -> None:
        self.model, self.core, self.cache = model, core, cache
        self.scores: list[torch.Tensor] | None = [] if keeps_scores else None
        self.batch, self.takes = batch, takes
        self.given: dict[str, Any] = {"use_cache": True}
        name = "past_key_values" if "past_key_values" in takes else "cache_params"
        if name == "past_key_values":
            self.given[name] = cache
        if "output_router_logits" in takes:
            self.given["output_router_logits"] = False  # for the loss that balances experts in training
        self.cache_name = name
        self.mask = batch.get("attention_mask")

    def prefill(self) -> torch.Tensor:
        if self.core.config.is_encoder_decoder:
            encoded = self.core.get_encoder()(**self.batch)
            self.given["encoder_outputs"] = encoded
            rows = next(iter(self.batch.values())).shape[0]
            start = torch.zeros(rows, 1, dtype=torch.long, device="cuda")
            return self._forward({"decoder_input_ids": start})
        kept = {"logits_to_keep": 1} if "logits_to_keep" in self.takes else {}
        return self._forward({**self.batch, **kept})

    def decode(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.core.config.is_encoder_decoder:
            return self._forward({"decoder_input_ids": tokens})
        inputs: dict[str, Any] = {"input_ids": tokens}
        if self.mask is not None and "attention_mask" in self.takes:
            self.mask = torch.cat([self.mask, self.mask.new_ones(self.mask.shape[0], 1)], dim=-1)
            inputs["attention_mask"] = self.mask
        if getattr(self.core.base_model, "rope_deltas", None) is not None:
            # Qwen-VL counts in three directions where there are images; generate() says where the new token stands.
            inputs["position_ids"] = tokens.new_zeros(3, *tokens.shape)
        return self._forward(inputs)

    def _forward(self, inputs: dict[str, Any]) -> torch.Tensor:
        output = self.model(**inputs, **self.given)
        if self.cache_name == "cache_params":
            self.given["cache_params"] = output.cache_params
        scores = output.logits[:, -1, :].float()
        if self.scores is not None:
            self.scores.append(scores)
        return scores.argmax(dim=-1, keepdim=True)

    def kept_scores(self) -> torch.Tensor | None:
        """In one tensor: as a list they end with `generate()`, and TRL then pads what all its calls have given."""
        if self.scores is None:
            return None
        stacked = torch.cat(self.scores)
        self.scores = None
        return stacked.clone()

    def grow(self, count: int) -> None:
        """As many more tokens in the cache as steps that are not followed would have put there."""
        if count <= 0:
            return
        if self.scores:
            self.scores.append(self.scores[0].new_empty(count * self.scores[0].shape[0], self.scores[0].shape[1]))
        if self.cache_name == "cache_params":
            return
        cache = getattr(self.cache, "self_attention_cache", self.cache)
        for number, layer in enumerate(cache.layers):
            shapes = shapes_of_states(layer)
            if shapes is not None:
                keys, values = (layer.keys.new_empty(*shape[:2], count, shape[-1]) for shape in shapes)
                cache.update(keys, values, number)
        if self.mask is not None and not self.core.config.is_encoder_decoder:
            self.mask = torch.cat([self.mask, self.mask.new_ones(self.mask.shape[0], count)], dim=-1)
