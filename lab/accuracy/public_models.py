"""Sizes of public language models, as their published `config.json` states them: facts, no weights, no network.

What a configuration of transformers has by default is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["PUBLIC_MODELS", "PublicModel", "find_public_model"]


@dataclass(frozen=True)
class PublicModel:
    """The classes of transformers, and the settings of the configuration."""

    model_class: str
    config_class: str
    settings: tuple[tuple[str, Any], ...] = ()


def _model(kind: str, model_class: str, **settings: Any) -> PublicModel:
    return PublicModel(model_class, f"{kind}Config", tuple(settings.items()))


def _gpt2(**settings: Any) -> PublicModel:
    return _model("GPT2", "GPT2LMHeadModel", **settings)


def _neox(width: int, layers: int, heads: int, hidden: int, vocabulary: int) -> PublicModel:
    return _model(
        "GPTNeoX", "GPTNeoXForCausalLM", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        intermediate_size=hidden, vocab_size=vocabulary,
    )  # fmt: skip


def _opt(width: int, layers: int, heads: int, **settings: Any) -> PublicModel:
    return _model(
        "OPT", "OPTForCausalLM", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        ffn_dim=4 * width, **settings,
    )  # fmt: skip


def _t5(width: int, layers: int, heads: int, hidden: int, **settings: Any) -> PublicModel:
    return _model(
        "T5", "T5ForConditionalGeneration", d_model=width, d_kv=64, num_layers=layers, num_heads=heads, d_ff=hidden,
        decoder_start_token_id=0, pad_token_id=0, **settings,
    )  # fmt: skip


def _decoder(kind: str, *, width: int, layers: int, heads: int, groups: int, hidden: int, vocabulary: int,
             **settings: Any) -> PublicModel:  # fmt: skip
    return _model(
        kind, f"{kind}ForCausalLM", hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=groups, intermediate_size=hidden, vocab_size=vocabulary, **settings,
    )  # fmt: skip


PUBLIC_MODELS: Mapping[str, PublicModel] = {
    "gpt2": _gpt2(),
    "distilgpt2": _gpt2(n_layer=6),
    "cerebras-gpt-111m": _gpt2(n_embd=768, n_layer=10, n_head=12, n_inner=3072, n_positions=2048,
                               activation_function="gelu", attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0),
    "gpt-neo-125m": _model("GPTNeo", "GPTNeoForCausalLM", hidden_size=768, num_layers=12, num_heads=12,
                           attention_types=[[["global", "local"], 6]], max_position_embeddings=2048),
    "opt-125m": _opt(768, 12, 12),
    "opt-350m": _opt(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "pythia-160m": _neox(768, 12, 12, 3072, 50304),
    "pythia-410m": _neox(1024, 24, 16, 4096, 50304),
    "pythia-1b": _neox(2048, 16, 8, 8192, 50304),
    "t5-small": _t5(512, 6, 8, 2048),
    "t5-base": _t5(768, 12, 12, 3072),
    "qwen3-0.6b": _decoder("Qwen3", width=1024, layers=28, heads=16, groups=8, hidden=3072, vocabulary=151936,
                           head_dim=128, tie_word_embeddings=True),
    "qwen3-1.7b": _decoder("Qwen3", width=2048, layers=28, heads=16, groups=8, hidden=6144, vocabulary=151936,
                           head_dim=128, tie_word_embeddings=True),
    "qwen3-4b": _decoder("Qwen3", width=2560, layers=36, heads=32, groups=8, hidden=9728, vocabulary=151936,
                         head_dim=128, tie_word_embeddings=True),
    "deepseek-r1-distill-qwen-1.5b": _decoder("Qwen2", width=1536, layers=28, heads=12, groups=2, hidden=8960,
                                              vocabulary=151936, tie_word_embeddings=False),
    "llama-3.2-1b": _decoder("Llama", width=2048, layers=16, heads=32, groups=8, hidden=8192, vocabulary=128256,
                             head_dim=64, tie_word_embeddings=True),
    "llama-3.2-3b": _decoder("Llama", width=3072, layers=28, heads=24, groups=8, hidden=8192, vocabulary=128256,
                             head_dim=128, tie_word_embeddings=True),
    "gemma-2-2b": _decoder("Gemma2", width=2304, layers=26, heads=8, groups=4, hidden=9216, vocabulary=256000,
                           head_dim=256, query_pre_attn_scalar=256),
}  # fmt: skip
"""By the name behind the organisation, in small letters; a model tuned for instructions has the sizes of its base."""


def find_public_model(name: str) -> PublicModel | None:
    """`EleutherAI/gpt-neo-125M`, `google/gemma-2-2b-it`; None for one that is not written here."""
    plain = name.lower().rpartition("/")[2]
    return PUBLIC_MODELS.get(plain) or PUBLIC_MODELS.get(plain.removesuffix("-it").removesuffix("-instruct"))
