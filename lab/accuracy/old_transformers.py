"""transformers as it was in spring 2025 (4.51), where it decides memory otherwise than today's."""

from __future__ import annotations

from typing import Any

__all__ = ["keep_cache_as_it_was", "settings_of_spring_2025"]

_COPYING = "sdpa_of_spring_2025"
_BY_ONE_FUNCTION = ("GPT2Config", "GPTNeoXConfig", "LlamaConfig", "Qwen2Config", "Qwen3Config")
"""Models whose attention was the function that all share; others called torch's kernel themselves, or wrote it out."""
_NO_CACHE_IN_TRAINING = ("Gemma2Config",)
"""Models whose cache was of a fixed size, and made only where nothing is trained."""


def _attention(config_class: str) -> str | None:
    """The attention to ask for, made known to transformers: it copies queries, keys and values before torch's kernel.

    None: the default. Cerebras-GPT × 32 comes out 5.3 % too low without these copies and 0.5 % with them, OPT × 39
    4.4 % too high with them and 0.1 % without.
    """
    if config_class not in _BY_ONE_FUNCTION:
        return None
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    def attention(module: Any, query: Any, key: Any, value: Any, *more: Any, **settings: Any) -> Any:
        copied = (tensor.contiguous() for tensor in (query, key, value))
        return sdpa_attention_forward(module, *copied, *more, **settings)

    AttentionInterface.register(_COPYING, attention)
    AttentionMaskInterface.register(_COPYING, sdpa_mask)
    return _COPYING


def settings_of_spring_2025(config_class: str) -> dict[str, Any]:
    """What the configuration says beside the model's sizes."""
    attention = _attention(config_class)
    settings: dict[str, Any] = {} if attention is None else {"attn_implementation": attention}
    return settings | ({"use_cache": False} if config_class in _NO_CACHE_IN_TRAINING else {})


def keep_cache_as_it_was() -> None:
    """For this process: the cache that a forward pass gives back holds keys and values themselves, not copies."""
    from transformers.cache_utils import DynamicLayer

    def update(layer: Any, keys: Any, values: Any, *more: Any, **settings: Any) -> Any:
        """Of a training step: there is one pass, so nothing is there to be joined."""
        layer.dtype, layer.device, layer.is_initialized = keys.dtype, keys.device, True
        layer.keys, layer.values = keys, values
        return keys, values

    cache: Any = DynamicLayer
    cache.update = update
