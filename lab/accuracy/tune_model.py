"""The decoder of torchtune's recipes, operator by operator as they run it, so that it keeps what theirs keeps."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

from .decoder_jobs import Lora, Shape

__all__ = ["TuneDecoder", "in_pieces", "off_the_gpu", "samples_mask"]

_POSITIONS = 4096
"""Positions whose angles the model keeps, however long the texts are."""
_SHARED_POSITIONS = 131_072
"""Likewise for Llama 3.2, once for all blocks."""


class _LoraLinear(nn.Linear):
    """A frozen layer with LoRA's pair of matrices beside it."""

    def __init__(self, inputs: int, outputs: int, lora: Lora) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.weight.requires_grad_(False)
        self.dropout = nn.Dropout(lora.dropout)
        self.lora_a = nn.Linear(inputs, lora.rank, bias=False)
        self.lora_b = nn.Linear(lora.rank, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out = functional.linear(x, self.weight)
        return out + 2.0 * self.lora_b(self.lora_a(self.dropout(x)))


def _linear(inputs: int, outputs: int, lora: Lora | None, is_tuned: bool) -> nn.Linear:
    return _LoraLinear(inputs, outputs, lora) if lora is not None and is_tuned else nn.Linear(inputs, outputs, False)


class _Norm(nn.Module):
    """In fp32, scaled in the weights' type."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x)
        return normed * self.scale


class _Positions(nn.Module):
    """Rotary positions: neighbouring elements are pairs, all in fp32."""

    cache: Tensor

    def __init__(self, per_head: int, positions: int = _POSITIONS) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(positions, per_head // 2, 2, dtype=torch.float32), persistent=False)

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        pairs = x.float().reshape(*x.shape[:-1], -1, 2)
        angles = self.cache[: x.size(1)] if places is None else self.cache[places]
        angles = angles.view(-1, pairs.size(1), 1, pairs.size(3), 2)
        first = pairs[..., 0] * angles[..., 0] - pairs[..., 1] * angles[..., 1]
        second = pairs[..., 1] * angles[..., 0] + pairs[..., 0] * angles[..., 1]
        return torch.stack([first, second], -1).flatten(3).type_as(x)


@torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]
def _over_samples(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask) -> Tensor:
    """Packed samples: flex attention, compiled by itself whatever else is compiled, outside of the block's graph."""
    out: Tensor = torch.compile(flex_attention, dynamic=False)(q, k, v, block_mask=mask)
    return out


class _Attention(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None, positions: _Positions | None) -> None:
        super().__init__()
        inner, kv = shape.heads * shape.per_head, shape.kv_heads * shape.per_head
        self.q_proj = _linear(shape.width, inner, lora, lora is not None and lora.queries)
        self.k_proj = _linear(shape.width, kv, lora, lora is not None and lora.keys)
        self.v_proj = _linear(shape.width, kv, lora, lora is not None and lora.values)
        self.output_proj = _linear(inner, shape.width, lora, lora is not None and lora.projection)
        self.positions = positions or _Positions(shape.per_head)
        self.shape = shape

    def forward(self, x: Tensor, mask: BlockMask | None = None, places: Tensor | None = None) -> Tensor:
        return self._causal(x) if mask is None else self._packed(x, mask, places)

    def _packed(self, x: Tensor, mask: BlockMask, places: Tensor | None) -> Tensor:
        """As of November 2024: keys are rotated before they are repeated."""
        rows, length, _ = x.shape
        groups, per_head = self.shape.kv_heads, self.shape.per_head
        queries = self.shape.heads // groups
        q = self.positions(self.q_proj(x).view(rows, length, -1, per_head), places).transpose(1, 2)
        k = self.positions(self.k_proj(x).view(rows, length, -1, per_head), places).transpose(1, 2)
        v = self.v_proj(x).view(rows, length, -1, per_head).transpose(1, 2)
        if queries > 1:
            k, v = (one.unsqueeze(2).expand(rows, groups, queries, -1, per_head).flatten(1, 2) for one in (k, v))
        out = _over_samples(q, k, v, mask)
        return self.output_proj(out.transpose(1, 2).contiguous().view(rows, length, -1))

    def _causal(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        groups, per_head = self.shape.kv_heads, self.shape.per_head
        queries = self.shape.heads // groups
        q = self.q_proj(x).view(rows, length, groups, queries, per_head)
        k = self.k_proj(x).view(rows, length, groups, 1, per_head)
        v = self.v_proj(x).view(rows, length, groups, 1, per_head)
        if queries > 1:
            k, v = (one.expand(rows, length, groups, queries, per_head) for one in (k, v))
        q, k, v = (one.reshape(rows, length, -1, per_head) for one in (q, k, v))
        q, k = self.positions(q), self.positions(k)
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output_proj(out.transpose(1, 2).contiguous().view(rows, length, -1))


class _FeedForward(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None) -> None:
        super().__init__()
        is_tuned = lora is not None and lora.mlp
        self.w1 = _linear(shape.width, shape.hidden, lora, is_tuned)
        self.w2 = _linear(shape.hidden, shape.width, lora, is_tuned)
        self.w3 = _linear(shape.width, shape.hidden, lora, is_tuned)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class _Block(nn.Module):
    def __init__(self, shape: Shape, lora: Lora | None, positions: _Positions | None) -> None:
        super().__init__()
        self.attn, self.mlp = _Attention(shape, lora, positions), _FeedForward(shape, lora)
        self.sa_norm, self.mlp_norm = _Norm(shape.width), _Norm(shape.width)

    def forward(self, x: Tensor, mask: BlockMask | None = None, places: Tensor | None = None) -> Tensor:
        h = self.attn(self.sa_norm(x), mask, places) + x
        return h + self.mlp(self.mlp_norm(h))


class TuneDecoder(nn.Module):
    """With LoRA, only its matrices are trained. `tied`: the head is the embedding. `shared_positions`: all blocks share
    the angles of Llama 3.2's positions."""

    def __init__(
        self, shape: Shape, lora: Lora | None, tied: bool, checkpointing: bool, shared_positions: bool = False
    ) -> None:
        super().__init__()
        positions = _Positions(shape.per_head, _SHARED_POSITIONS) if shared_positions else None
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(_Block(shape, lora, positions) for _ in range(shape.layers))
        self.norm = _Norm(shape.width)
        self.output = None if tied else nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.checkpointing = checkpointing
        if lora is not None:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def states(self, tokens: Tensor, mask: BlockMask | None = None, places: Tensor | None = None) -> Tensor:
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = (
                checkpoint(layer, h, mask, places, use_reentrant=False)
                if self.checkpointing
                else layer(h, mask, places)
            )
        normed: Tensor = self.norm(h)
        return normed

    def head(self, states: Tensor) -> Tensor:
        weight = self.tok_embeddings.weight if self.output is None else self.output.weight
        return functional.linear(states, weight)

    def forward(self, tokens: Tensor, mask: BlockMask | None = None, places: Tensor | None = None) -> Tensor:
        return self.head(self.states(tokens, mask, places)).float()


def samples_mask(samples: Tensor) -> BlockMask:
    """Tokens see those before them of their own sample; `samples` has its number at each token."""
    rows, length = samples.shape

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (query >= key) & (samples[row, query] == samples[row, key])

    return create_block_mask(seen, rows, None, length, length, device=samples.device)


def in_pieces(model: TuneDecoder, states: Tensor, labels: Tensor, pieces: int, cross_entropy: Any) -> Tensor:
    """Head and loss in pieces of the sequence: the logits of all pieces are there before the first loss."""
    logits = [model.head(piece) for piece in states.tensor_split(pieces, dim=1)]
    wanted = labels.chunk(pieces, dim=1)
    total = sum(
        cross_entropy(scores.reshape(-1, scores.size(-1)), right.reshape(-1))
        for scores, right in zip(logits, wanted, strict=True)
    )
    del logits
    mean: Tensor = total / (labels != -100).sum()
    return mean


_IN_FLIGHT = 5
"""Activations on their way to the host that the recipes keep at once."""
_SMALLEST = 1024


@contextlib.contextmanager
def off_the_gpu() -> Any:
    """What autograd saves goes to pinned memory on a stream of its own; the newest few stay until they have arrived.

    Coming back, each is there for the node that asked for it, and until the next one asks.
    """
    side = torch.cuda.Stream()
    leaving: OrderedDict[int, Tensor] = OrderedDict()
    place = 0

    def pack(tensor: Tensor) -> Any:
        nonlocal place
        place += 1
        if tensor.numel() * tensor.element_size() < _SMALLEST or isinstance(tensor, (nn.Parameter, nn.Buffer)):
            return tensor
        while leaving and next(iter(leaving)) <= place - _IN_FLIGHT:
            leaving.popitem(last=False)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            kept = torch.empty_like(tensor, device="cpu", pin_memory=True)
            kept.copy_(tensor, non_blocking=True)
        leaving[place] = tensor
        return place, kept

    def unpack(packed: Any) -> Tensor:
        if isinstance(packed, Tensor):
            return packed
        number, kept = packed
        if number in leaving:
            back = leaving.pop(number)
            leaving.clear()
            return back
        with torch.cuda.stream(side):
            back = kept.to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        back.record_stream(torch.cuda.current_stream())
        return back

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
