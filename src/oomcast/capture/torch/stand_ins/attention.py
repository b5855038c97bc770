"""flash-attention and xformers: attention that never holds the scores. Sources: the table beside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["LowerTriangularMask", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func",
           "flash_attn_unpadded_func", "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
           "flash_attn_varlen_qkvpacked_func", "index_first_axis", "memory_efficient_attention", "pad_input",
           "unpad_input"]  # fmt: skip

_BLOCK = 128
"""Rows of queries are rounded up to this in the buffers of the backward pass."""


class _Flash(torch.autograd.Function):
    """Keeps its inputs, its output and a number for each row and head (`softmax_lse`, fp32)."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, sequences: int) -> Tensor:
        """`sequences`: of a packed batch, whose rows are in one line; 0 for a batch of rows of equal length."""
        out = torch.empty_like(query)
        rows = query.shape[:-2] if sequences else query.shape[:-3] + query.shape[-3:-2]
        sums = query.new_empty((*rows, query.shape[-2]), dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, sums)
        ctx.sequences = sequences
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        query, key, value, out, _ = ctx.saved_tensors
        gradient = gradient.contiguous()
        heads, width = query.shape[-2], query.shape[-1]
        if ctx.sequences:
            rows = query.shape[0] + _BLOCK * ctx.sequences
        else:
            rows = query.shape[0] * (-(-query.shape[1] // _BLOCK) * _BLOCK)
        grads = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
        rounded = -(-width // 32) * 32 if width <= 192 else 256
        buffers = [query.new_empty(rows, heads, dtype=torch.float32)]
        if query.dtype is not torch.float32:
            buffers.append(query.new_empty(rows, heads, rounded, dtype=torch.float32))
        if key.shape[-2] != heads:  # grouped queries: gradients of every head first, then their sums
            buffers += [key.new_empty(*key.shape[:-2], heads, width) for _ in range(2)]
        del buffers, out
        return (*grads, None)


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _answer(_Flash.apply(q, k, v, 0), q, kwargs)


def flash_attn_qkvpacked_func(qkv: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _answer(_Flash.apply(*qkv.unbind(2), 0), qkv, kwargs)


def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _answer(_Flash.apply(q, *kv.unbind(2), 0), q, kwargs)


def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, *args: Any, **kwargs: Any) -> Any:
    return _answer(_Flash.apply(q, k, v, max(cu_seqlens_q.shape[0] - 1, 1)), q, kwargs)


def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, *args: Any, **kwargs: Any) -> Any:
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, **kwargs)


def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, *args: Any, **kwargs: Any) -> Any:
    return flash_attn_varlen_func(q, *kv.unbind(1), cu_seqlens_q, **kwargs)


flash_attn_unpadded_func = flash_attn_varlen_func


def _answer(out: Tensor, like: Tensor, asked: dict[str, Any]) -> Any:
    if not asked.get("return_attn_probs"):
        return out
    return out, like.new_empty(out.shape[:-1], dtype=torch.float32), None


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    return x[indices]


def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None) -> Any:
    """Without the padding: the rows of all sequences in one line, where they begin, and the longest."""
    lengths = attention_mask.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(attention_mask.flatten(), as_tuple=False).flatten()
    starts = torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
    return hidden_states.flatten(0, 1)[indices], indices, starts, attention_mask.shape[1], lengths


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    out = hidden_states.new_zeros(batch * seqlen, *hidden_states.shape[1:])
    out[indices] = hidden_states
    return out.view(batch, seqlen, *hidden_states.shape[1:])


class LowerTriangularMask:
    """xformers' causal mask: nothing is held for it."""


def memory_efficient_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_bias: Any = None, p: float = 0.0, scale: float | None = None,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """(batch, rows, heads, width), or without heads."""
    if query.dim() == 3:
        query, key, value = (part.unsqueeze(2) for part in (query, key, value))
        return memory_efficient_attention(query, key, value, attn_bias, p, scale).squeeze(2)
    out: Tensor = _Flash.apply(query, key, value, 0)
    return out
