"""The decoder that litgpt's scripts train, operator by operator as they run it, so that it keeps what theirs keeps."""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .decoder_jobs import Lora, Shape

__all__ = ["Decoder", "quantise"]

_PROMPT, _FIRST_PROMPTED = 10, 2
"""Adapter prompts: so many tokens, from this layer on."""


class _Linear(nn.Module):
    """A layer that may carry LoRA's pair of matrices, or adapter v2's scale and bias."""

    def __init__(self, inputs: int, outputs: int, bias: bool, lora: Lora | None, adapter: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=bias)
        self.adapter_bias = nn.Parameter(torch.zeros(outputs)) if adapter else None
        self.adapter_scale = nn.Parameter(torch.ones(outputs)) if adapter else None
        self.lora_down = nn.Parameter(torch.empty(lora.rank, inputs)) if lora else None
        self.lora_up = nn.Parameter(torch.empty(outputs, lora.rank)) if lora else None
        self.dropout = nn.Dropout(lora.dropout) if lora else None

    def forward(self, x: Tensor) -> Tensor:
        pretrained = self.linear(x)
        if self.adapter_scale is not None:
            return self.adapter_scale * (pretrained + self.adapter_bias)
        if self.dropout is None:
            return pretrained
        update = (self.dropout(x) @ self.lora_down.T @ self.lora_up.T) * 2.0  # type: ignore[union-attr]
        return pretrained + update


class _QkvWithLora(nn.Module):
    """Queries, keys and values in one layer; the update of those that have one is spread over a tensor of zeros."""

    def __init__(self, shape: Shape, outputs: int, lora: Lora) -> None:
        super().__init__()
        self.linear = nn.Linear(shape.width, outputs, bias=shape.bias)
        per_group = shape.heads // shape.kv_heads + 2
        kinds = [(row // shape.per_head) % per_group for row in range(outputs)]
        wanted = (lora.queries, lora.keys, lora.values)
        rows = (
            [i for i, kind in enumerate(kinds) if kind < per_group - 2],
            [i for i, kind in enumerate(kinds) if kind == per_group - 2],
            [i for i, kind in enumerate(kinds) if kind == per_group - 1],
        )
        self.parts = [part for part, used in zip(rows, wanted, strict=True) if used]
        self.outputs = outputs
        self.equal = shape.heads == shape.kv_heads
        self.everywhere = all(wanted)
        self.lora_down = nn.Parameter(torch.empty(lora.rank * len(self.parts), shape.width))
        self.lora_up = nn.Parameter(torch.empty(sum(map(len, self.parts)), lora.rank))
        self.dropout = nn.Dropout(lora.dropout)

    def forward(self, x: Tensor) -> Tensor:
        pretrained = self.linear(x)
        down = functional.linear(self.dropout(x), self.lora_down)
        up = self._up(down.transpose(-2, -1), self.lora_up.unsqueeze(-1)).transpose(-2, -1)
        update = self._spread(up) * 2.0
        return pretrained + update

    def _up(self, down: Tensor, weight: Tensor) -> Tensor:
        if self.equal:
            return functional.conv1d(down, weight, groups=len(self.parts))
        downs = down.chunk(len(self.parts), dim=1)
        weights = weight.split([len(part) for part in self.parts])
        return torch.cat([functional.conv1d(a, b) for a, b in zip(downs, weights, strict=True)], dim=1)

    def _spread(self, up: Tensor) -> Tensor:
        if self.everywhere:
            return up
        up = up.transpose(0, 1)
        spread = up.new_zeros((*up.shape[:-1], self.outputs)).view(-1, self.outputs)
        where = torch.tensor([row for part in self.parts for row in part], device=spread.device)
        spread = spread.index_copy(1, where, up.reshape(-1, up.shape[-1]))
        return spread.view((*up.shape[:-1], self.outputs)).transpose(0, 1)


class _RmsNorm(nn.Module):
    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        if self.kind != "rms":
            x = x.float()
        squares = torch.mean(x * x, dim=-1, keepdim=True)
        normed = x * torch.rsqrt(squares + 1e-5)
        if self.kind == "rms":
            return self.weight * normed
        if self.kind == "rms-float-out":
            return (normed * self.weight.float()).to(dtype)
        return normed.to(dtype) * self.weight


class _Attention(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None, adapter: bool, prompted: bool) -> None:
        super().__init__()
        outputs = (shape.heads + 2 * shape.kv_heads) * shape.per_head
        inner = shape.heads * shape.per_head
        if lora is not None and (lora.queries or lora.keys or lora.values):
            self.qkv: nn.Module = _QkvWithLora(shape, outputs, lora)
        else:
            self.qkv = _Linear(shape.width, outputs, shape.bias, None, adapter)
        self.proj = _Linear(inner, shape.width, shape.bias, lora if lora and lora.projection else None, adapter)
        self.adapter_prompt = nn.Embedding(_PROMPT, shape.width) if prompted else None
        self.adapter_gate = nn.Parameter(torch.zeros(1, 1, shape.heads, 1)) if prompted else None
        self.shape = shape

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self._heads(self.qkv(x))
        rotated = int(self.shape.rotary * self.shape.per_head)
        q_roped = _rope(q[..., :rotated], cos, sin)
        k_roped = _rope(k[..., :rotated], cos, sin)
        q = torch.cat((q_roped, q[..., rotated:]), dim=-1)
        k = torch.cat((k_roped, k[..., rotated:]), dim=-1)
        scale = 1.0 / math.sqrt(self.shape.per_head)
        y = functional.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True).transpose(1, 2)
        if self.adapter_prompt is not None:
            prompt = self.adapter_prompt.weight.unsqueeze(0)
            _, prompt_k, prompt_v = self._heads(self.qkv(prompt))
            mask = torch.ones(length, _PROMPT, dtype=torch.bool, device=q.device)
            read = functional.scaled_dot_product_attention(q, prompt_k, prompt_v, attn_mask=mask, scale=scale)
            y = y + self.adapter_gate * read.transpose(1, 2)  # type: ignore[operator]
        y = y.reshape(batch, length, self.shape.heads * self.shape.per_head)
        return self.proj(y)

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, _ = qkv.shape
        groups, per_head = self.shape.kv_heads, self.shape.per_head
        queries = self.shape.heads // groups
        qkv = qkv.view(batch, length, groups, queries + 2, per_head).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((queries, 1, 1), dim=2)
        if groups != self.shape.heads:
            k = k.expand(batch, groups, queries, length, per_head)
            v = v.expand(batch, groups, queries, length, per_head)
        q = q.reshape(batch, -1, length, per_head)
        k = k.reshape(batch, -1, length, per_head)
        v = v.reshape(batch, -1, length, per_head)
        return q, k, v


class _Mlp(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None, adapter: bool) -> None:
        super().__init__()
        lora = lora if lora and lora.mlp else None
        self.gated = shape.mlp != "gelu"
        self.silu = shape.mlp == "silu-gated"
        self.fc = _Linear(shape.width, shape.hidden, shape.bias, lora, adapter)
        if self.gated:
            self.gate = _Linear(shape.width, shape.hidden, shape.bias, lora, adapter)
        self.proj = _Linear(shape.hidden, shape.width, shape.bias, lora, adapter)

    def forward(self, x: Tensor) -> Tensor:
        first = self.fc(x)
        if not self.gated:
            x = functional.gelu(first)
            return self.proj(x)
        second = self.gate(x)
        x = (functional.silu(first) if self.silu else functional.gelu(first)) * second
        return self.proj(x)


class _Block(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None, adapter: bool, prompted: bool) -> None:
        super().__init__()
        self.norm_1 = _norm(shape)
        self.attention = _Attention(shape, lora, adapter, prompted)
        self.norm_2 = None if shape.shared_norm else _norm(shape)
        self.mlp = _Mlp(shape, lora, adapter)
        self.parallel = shape.parallel

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.attention(normed, cos, sin)
        if self.parallel:
            normed = normed if self.norm_2 is None else self.norm_2(x)
            return x + attended + self.mlp(normed)
        x = x + attended
        return x + self.mlp(self.norm_2(x))  # type: ignore[misc]


class Decoder(nn.Module):
    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape, length: int, lora: Lora | None, adapter: bool) -> None:
        super().__init__()
        self.head = _Linear(
            shape.width, shape.vocabulary, shape.head_bias, lora if lora and lora.head else None, adapter
        )
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(
            _Block(shape, lora, adapter, adapter and layer >= _FIRST_PROMPTED) for layer in range(shape.layers)
        )
        self.norm_last = _norm(shape)
        rotated = int(shape.rotary * shape.per_head)
        # fp32 whatever the weights are: products with it are fp32 too.
        self.register_buffer("cos", torch.ones(length, rotated, dtype=torch.float32), persistent=False)
        self.register_buffer("sin", torch.ones(length, rotated, dtype=torch.float32), persistent=False)
        self.scale = shape.width**0.5 if shape.scaled_embedding else None
        if lora is not None:
            _train_only(self, ("lora_",))
        elif adapter:
            _train_only(self, ("adapter_", "norm_"))

    def forward(self, tokens: Tensor, chunk: int = 0) -> Tensor | list[Tensor]:
        x = self.embedding(tokens)
        if self.scale is not None:
            x = x * self.scale
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        x = self.norm_last(x)
        if chunk:
            return [self.head(piece) for piece in x.split(chunk, dim=1)]
        return self.head(x)


def _bitsandbytes() -> Any:
    """It is not needed for rows that quantise nothing."""
    return importlib.import_module("bitsandbytes")


class _MatMul4Bit(torch.autograd.Function):
    """As in bitsandbytes 0.41 and 0.42, which litgpt used: the input stays with the node, though nothing reads it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Any, bias: Tensor | None) -> Tensor:
        ctx.tensors = (x, weight)
        whole = _bitsandbytes().functional.dequantize_4bit(weight.data, weight.quant_state).to(x.dtype)
        return functional.linear(x, whole, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        _, weight = ctx.tensors
        whole = _bitsandbytes().functional.dequantize_4bit(weight.data, weight.quant_state).to(gradient.dtype)
        return torch.matmul(gradient, whole), None, None


class _Linear4Bit(nn.Module):
    """A frozen layer whose weights are quantised to NF4 when they are moved to the GPU.

    bitsandbytes 0.41 and 0.42 quantise from float16 and so dequantise to it: for bfloat16 a second copy is made.
    """

    def __init__(self, linear: nn.Linear, double: bool) -> None:
        super().__init__()
        self.weight: Any = _bitsandbytes().nn.Params4bit(
            linear.weight.data.half(), requires_grad=False, compress_statistics=double, quant_type="nf4"
        )
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = _MatMul4Bit.apply(x.to(torch.bfloat16), self.weight, self.bias)
        return out.to(x.dtype)


def quantise(model: nn.Module, double: bool) -> None:
    """Every linear layer as bitsandbytes' NF4, computed in bfloat16."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, _Linear4Bit(child, double))


def _norm(shape: Shape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.norm == "layer" else _RmsNorm(shape.width, shape.norm)


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    first, second = x[..., :half], x[..., half:]
    turned = torch.cat((-second, first), dim=-1)
    roped = (x * cos) + (turned * sin)
    return roped.to(x.dtype)


def _train_only(model: nn.Module, parts: tuple[str, ...]) -> None:
    for name, parameter in model.named_parameters():
        parameter.requires_grad = any(part in name for part in parts)
