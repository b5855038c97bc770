"""torchtitan's decoders of 2026, operator by operator, so that they keep what theirs keep (see `titan_2026`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

from .titan_2026 import TitanDecoderShape
from .titan_model import FeedForward

__all__ = ["TitanDecoder", "chunked_loss", "prefetch_neighbours"]

_KERNELS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]


def _turn(x: Tensor, table: Tensor) -> Tensor:
    """Rotary positions with cosines and sines side by side, in fp32."""
    cosines, sines = table.chunk(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return ((x * cosines) + (turned * sines)).type_as(x)


class _Attention(nn.Module):
    def __init__(self, shape: TitanDecoderShape, kernel: str) -> None:
        super().__init__()
        self.per_head, self.kernel = shape.per_head, kernel
        self.repeats = shape.heads // shape.kv_heads
        self.wqkv = self.wq = self.wk = self.wv = None
        if shape.fused_qkv:
            rows = (shape.heads + 2 * shape.kv_heads) * shape.per_head
            self.wqkv = nn.Linear(shape.width, rows, bias=False)
        else:
            self.wq = nn.Linear(shape.width, shape.heads * shape.per_head, bias=False)
            self.wk = nn.Linear(shape.width, shape.kv_heads * shape.per_head, bias=False)
            self.wv = nn.Linear(shape.width, shape.kv_heads * shape.per_head, bias=False)
        self.wo = nn.Linear(shape.heads * shape.per_head, shape.width, bias=False)
        self.q_norm = nn.RMSNorm(shape.per_head, eps=1e-6) if shape.normed_heads else None
        self.k_norm = nn.RMSNorm(shape.per_head, eps=1e-6) if shape.normed_heads else None

    def forward(self, x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        query, key, value = self._projected(x)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        wide = table[None, :, None, :].expand(batch, -1, -1, -1)
        places = positions.view(batch, tokens, 1, 1).expand(batch, tokens, 1, 2 * self.per_head)
        turns = torch.gather(wide, 1, places)
        query, key = _turn(query, turns), _turn(key, turns)
        query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
        scale, grouped = self.per_head**-0.5, self.repeats > 1
        if self.kernel == "flex":
            out: Tensor = flex_attention(query, key, value, scale=scale, enable_gqa=grouped)
        else:
            with sdpa_kernel(_KERNELS, set_priority=True):
                out = functional.scaled_dot_product_attention(
                    query, key, value, is_causal=True, scale=scale, enable_gqa=grouped
                )
        attended: Tensor = self.wo(out.transpose(1, 2).contiguous().view(batch, tokens, -1))
        return attended

    def _projected(self, x: Tensor) -> tuple[Tensor, ...]:
        batch, tokens, _ = x.shape
        if self.wqkv is None:
            return tuple(
                projection(x).view(batch, tokens, -1, self.per_head)
                for projection in (self.wq, self.wk, self.wv)
                if projection is not None
            )
        wide = self.wqkv(x).view(batch, tokens, -1, self.repeats + 2, self.per_head)
        parts = torch.split(wide, [self.repeats, 1, 1], dim=-2)
        return tuple(part.reshape(batch, tokens, -1, self.per_head) for part in parts)


class _Block(nn.Module):
    def __init__(self, shape: TitanDecoderShape, kernel: str) -> None:
        super().__init__()
        self.attention = _Attention(shape, kernel)
        self.feed_forward = FeedForward(shape.width, shape.inner)
        self.attention_norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.ffn_norm = nn.RMSNorm(shape.width, eps=1e-6)

    def forward(self, x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), table, positions)
        return x + self.feed_forward(self.ffn_norm(x))


class TitanDecoder(nn.Module):
    """Ends with the last norm: the head is called by the loss, piece by piece."""

    table: Tensor

    def __init__(self, shape: TitanDecoderShape, length: int, kernel: str) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.register_buffer("table", torch.empty(length, 2 * shape.per_head), persistent=False)
        self.layers = nn.ModuleDict({str(place): _Block(shape, kernel) for place in range(shape.depth)})
        self.norm = nn.RMSNorm(shape.width, eps=1e-6)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers.values():
            x = layer(x, self.table, positions)
        return self.norm(x)


def prefetch_neighbours(model: Any) -> None:
    """FSDP2 gathers the next layer while one computes, in both directions, where the job says which."""
    layers = list(model.layers.values())
    for layer, following in zip(layers, [*layers[1:], model.lm_head], strict=True):
        layer.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([layer])


def chunked_loss(model: Any, states: Tensor, labels: Tensor, pieces: int, cross_entropy: Any) -> Tensor:
    """The head and the loss of one piece of the sequence at a time, with its backward; the head stays gathered."""
    head = model.lm_head
    detached = states.detach().requires_grad_()
    parts = [part.contiguous().detach().requires_grad_() for part in torch.chunk(detached, pieces, dim=1)]
    gradient = torch.zeros_like(detached, dtype=torch.float32)
    total = states.new_zeros((), dtype=torch.float32)
    head.set_reshard_after_forward(False)
    head.set_reshard_after_backward(False)
    head.set_requires_gradient_sync(False, recurse=False)
    start = 0
    for place, (part, wanted) in enumerate(zip(parts, torch.chunk(labels, pieces, dim=1), strict=True)):
        if place == len(parts) - 1:
            head.set_requires_gradient_sync(True, recurse=False)
        logits = head(part)  # named as there: a piece's logits are held until the next ones are made
        loss = cross_entropy(logits, wanted) / labels.numel()
        total = total + loss.detach()
        loss.backward()
        assert part.grad is not None
        gradient[:, start : start + part.shape[1]] = part.grad.to(torch.float32)
        start += part.shape[1]
        part.grad = None
    head.set_reshard_after_forward(True)
    head.set_reshard_after_backward(True)
    head.reshard()
    return _Decoder.apply(states, gradient.to(states.dtype), total)


class _Decoder(torch.autograd.Function):
    """Hands the gradient that the pieces left to the layers beneath."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, gradient: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return loss.detach()

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return ctx.saved_tensors[0], None, None
