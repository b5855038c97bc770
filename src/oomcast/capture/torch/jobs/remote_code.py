"""Model types whose code is not in transformers: it comes with their weights (`trust_remote_code`), which nothing here
runs.

They are written again from their published wiring: the same parameters under the same names, so that an adapter's
target modules are those of the original, and the same tensors between them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput

__all__ = ["register_remote_code"]


class QWenConfig(PretrainedConfig):
    """Qwen of 2023 (`Qwen/Qwen-7B`): the keys of its config.json. `intermediate_size` is that of both halves."""

    model_type = "qwen"

    vocab_size: int = 151936
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    intermediate_size: int = 22016
    seq_length: int = 2048
    layer_norm_epsilon: float = 1e-6
    rotary_emb_base: float = 10000.0
    tie_word_embeddings: bool = False


class _RMSNorm(nn.Module):
    """In fp32, scaled in the weights' type."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return normed.type_as(x) * self.weight


class _Rotary(nn.Module):
    """The angles of all positions, in fp32."""

    inv_freq: torch.Tensor

    def __init__(self, per_head: int, base: float) -> None:
        super().__init__()
        inverse = 1.0 / (base ** (torch.arange(0, per_head, 2).float() / per_head))
        self.register_buffer("inv_freq", inverse, persistent=False)

    def forward(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        angles = torch.outer(torch.arange(length, device=self.inv_freq.device).float(), self.inv_freq.float())
        angles = torch.cat((angles, angles), dim=-1)[None, :, None, :]
        return angles.cos(), angles.sin()


def _rotated(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * cosine + torch.cat((-second, first), dim=-1) * sine).type_as(x)


class _QWenAttention(nn.Module):
    """flash-attn's kernel, which needs no mask; where it is switched off, torch's attention with a mask of its own."""

    def __init__(self, config: QWenConfig) -> None:
        super().__init__()
        self.has_flash = config._attn_implementation != "eager"
        self.heads = config.num_attention_heads
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], hidden: torch.Tensor | None
    ) -> torch.Tensor:
        rows, length, width = x.shape
        query, key, value = (
            part.view(rows, length, self.heads, width // self.heads) for part in self.c_attn(x).split(width, dim=2)
        )
        query, key = _rotated(query, *angles), _rotated(key, *angles)
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=None if self.has_flash else self._mask(length, x.device, query.dtype, hidden),
            is_causal=self.has_flash,
        )
        return self.c_proj(mixed.transpose(1, 2).reshape(rows, length, width))

    @staticmethod
    def _mask(length: int, device: torch.device, dtype: torch.dtype, hidden: torch.Tensor | None) -> torch.Tensor:
        """Each layer makes it anew, for all heads together."""
        seen = torch.tril(torch.ones((length, length), dtype=torch.bool, device=device)).view(1, 1, length, length)
        if hidden is None:
            return seen
        return hidden.to(dtype).expand(-1, -1, length, -1).masked_fill(~seen, torch.finfo(dtype).min)


class _QWenMLP(nn.Module):
    def __init__(self, config: QWenConfig) -> None:
        super().__init__()
        inner = config.intermediate_size // 2
        self.w1 = nn.Linear(config.hidden_size, inner, bias=False)
        self.w2 = nn.Linear(config.hidden_size, inner, bias=False)
        self.c_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_proj(self.w1(x) * F.silu(self.w2(x)))


class _QWenBlock(GradientCheckpointingLayer):
    def __init__(self, config: QWenConfig) -> None:
        super().__init__()
        self.ln_1 = _RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.attn = _QWenAttention(config)
        self.ln_2 = _RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mlp = _QWenMLP(config)

    def forward(
        self, x: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], hidden: torch.Tensor | None
    ) -> torch.Tensor:
        x = self.attn(self.ln_1(x), angles, hidden) + x
        return x + self.mlp(self.ln_2(x))


class _QWenPreTrainedModel(PreTrainedModel):
    config_class = QWenConfig
    base_model_prefix = "transformer"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True

    def _init_weights(self, module: nn.Module) -> None:
        """Values do not matter here."""


class _QWenModel(_QWenPreTrainedModel):
    def __init__(self, config: QWenConfig) -> None:
        super().__init__(config)
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.rotary_emb = _Rotary(config.hidden_size // config.num_attention_heads, config.rotary_emb_base)
        self.h = nn.ModuleList(_QWenBlock(config) for _ in range(config.num_hidden_layers))
        self.ln_f = _RMSNorm(config.hidden_size, config.layer_norm_epsilon)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.wte

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.wte = value  # type: ignore[assignment]

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **_: Any) -> BaseModelOutput:
        x = self.wte(input_ids)
        angles = self.rotary_emb(input_ids.shape[1])
        hidden = None
        if attention_mask is not None:
            hidden = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for block in self.h:
            x = block(x, angles, hidden)
        return BaseModelOutput(last_hidden_state=self.ln_f(x))


class QWenLMHeadModel(_QWenPreTrainedModel, GenerationMixin):
    """Its loss copies the shifted logits, as transformers' own models did before 4.46."""

    def __init__(self, config: QWenConfig) -> None:
        super().__init__(config)
        self.transformer = _QWenModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.transformer.wte

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        self.lm_head = new_embeddings

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        logits = self.lm_head(self.transformer(input_ids, attention_mask).last_hidden_state)
        loss: Any = None
        if labels is not None:
            shifted = logits[..., :-1, :].contiguous()
            wanted = labels[..., 1:].contiguous()
            loss = F.cross_entropy(shifted.view(-1, shifted.size(-1)), wanted.view(-1))
        return CausalLMOutput(loss=loss, logits=logits)


def register_remote_code() -> None:
    """Make these types known to transformers, as `trust_remote_code` would."""
    AutoConfig.register(QWenConfig.model_type, QWenConfig, exist_ok=True)
    AutoModelForCausalLM.register(QWenConfig, QWenLMHeadModel, exist_ok=True)
