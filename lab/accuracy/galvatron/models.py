"""The models of Hetu-Galvatron's profiles, as lists of parts: what is sharded, what is cut, what each keeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .kernels import bias_gelu, flash_attention, fused_loss, masked_softmax, rms_norm, vocabulary_loss
from .parallel_layers import Cut, ParallelLinear, VocabularyEmbedding

__all__ = ["Layout", "Unit", "stage_units"]

_IMAGE, _PATCH, _CLASSES = 224, 16, 1000


@dataclass(frozen=True)
class Layout:
    """A profile: a model of few layers, how it is spread, and what its version of the library did."""

    model: str
    """`gpt`, `llama`, `bert`, `vit`: over Megatron-LM's layers; `gpt_fa`, `llama_fa`: over flash-attn's."""
    width: int
    heads: int
    inner: int
    """Features between the two products of a feed-forward part."""
    layers: int
    length: int
    vocabulary: int
    pipeline: int
    tensor: int
    data: int
    batch: int
    """Samples of all GPUs together."""
    cuts_vocabulary: bool
    by_tokens: bool
    """Sequence parallelism: between the cut layers, each GPU has some of the tokens."""
    recomputes: bool
    buffers_alone: bool = False
    """Tokens were gathered with a single GPU too."""
    whole_positions: bool = False
    """The positions' embedding was not cut with the vocabulary."""
    of_2023: bool = False
    """The first published version: other units, a dropout before each norm, logits copied for the loss; in pipelines,
    gradients are reduced after the whole backward."""

    @property
    def samples_first(self) -> bool:
        return self.model.endswith("_fa")

    @property
    def dropout(self) -> float:
        return 0.1 if self.model in ("gpt", "gpt_fa", "bert") else 0.0

    def buffers_of(self, parts: int) -> bool:
        return parts > 1 or self.buffers_alone

    @property
    def batch_inside(self) -> int:
        """Samples of a GPU within the cut layers."""
        return self.batch // self.data

    @property
    def batch_outside(self) -> int:
        return self.batch_inside if self.cuts_vocabulary else self.batch // (self.data * self.tensor)

    def between(self) -> tuple[int, ...]:
        """What a stage hands to the next."""
        if self.samples_first and self.by_tokens:
            return self.batch_inside * self.length // self.tensor, self.width
        if self.samples_first:
            return self.batch_inside, self.length, self.width
        return self.length // (self.tensor if self.by_tokens else 1), self.batch_inside, self.width

    def inputs(self, batch: int, device: torch.device) -> tuple[Tensor, dict[str, Tensor]]:
        if self.model == "vit":
            images = torch.zeros((batch, 3, _IMAGE, _IMAGE), device=device)
            return images, {"labels": torch.zeros(batch, dtype=torch.long, device=device)}
        tokens = torch.randint(100, (batch, self.length + 1), device=device)
        return tokens[:, :-1].contiguous(), {"labels": tokens[:, 1:].contiguous()}


class Unit(NamedTuple):
    """A part of the model; which modules, by owner and name, are sharded by themselves; whether it is a layer."""

    module: nn.Module
    sharded: tuple[tuple[nn.Module, str], ...]
    is_layer: bool = False


class Holder(nn.Module):
    """Around a module that is to be replaced by its sharded self; `labels` go to those that take them."""

    def __init__(self, inside: nn.Module, takes_labels: bool) -> None:
        super().__init__()
        self.inside, self.takes_labels = inside, takes_labels

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.inside(x, labels) if self.takes_labels else self.inside(x)


def held(module: nn.Module, *, takes_labels: bool = False, is_layer: bool = False) -> Unit:
    holder = Holder(module, takes_labels)
    return Unit(holder, ((holder, "inside"),), is_layer)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight)


def norm_of(layout: Layout) -> nn.Module:
    return RmsNorm(layout.width) if layout.model.startswith("llama") else nn.LayerNorm(layout.width)


class Attention(nn.Module):
    """Megatron-LM's: tokens first."""

    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.layout, self.cut = layout, cut
        self.heads = layout.heads // cut.parts
        bias = layout.model != "llama"
        self.query_key_value = ParallelLinear(layout.width, 3 * layout.width, cut, bias=bias)
        self.dense = ParallelLinear(layout.width, layout.width, cut, by_rows=True, apart=True, bias=bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        mixed, _ = self.query_key_value(x)
        tokens, batch, _ = mixed.shape
        query, key, value = mixed.view(tokens, batch, self.heads, -1).chunk(3, dim=-1)
        if self.layout.model == "llama":
            query, key = (_rotated(part) for part in (query, key))
        mix = self._written_out if self.layout.model in ("bert", "vit") else self._flash
        return self.dense(mix(query, key, value))

    def _flash(self, *parts: Tensor) -> Tensor:
        query, key, value = (part.transpose(0, 1).contiguous().transpose(1, 2) for part in parts)
        out = functional.scaled_dot_product_attention(query, key, value, dropout_p=self.layout.dropout, is_causal=True)
        return out.transpose(1, 2).flatten(2).transpose(0, 1).contiguous()

    def _written_out(self, *parts: Tensor) -> Tensor:
        """Scores are written into the global buffer's shape first, and what is masked is left out by a fused kernel
        where the length allows it."""
        tokens, batch, heads, features = parts[0].shape
        query, key, value = (part.reshape(tokens, batch * heads, features).transpose(0, 1) for part in parts)
        assert self.cut.buffers is not None
        form = self.cut.buffers.get((batch * heads, tokens, tokens), query)
        scores = torch.baddbmm(form, query, key.transpose(1, 2), beta=0.0, alpha=1.0)
        scores = scores.view(batch, heads, tokens, tokens)
        if tokens % 4:
            mask = torch.zeros((batch, 1, tokens, tokens), dtype=torch.bool, device=scores.device)
            probabilities = torch.softmax(scores.masked_fill_(mask, -10000.0), dim=-1)
        else:
            probabilities = masked_softmax(scores)
        probabilities = functional.dropout(probabilities, p=self.layout.dropout)
        context = torch.bmm(probabilities.view(batch * heads, tokens, tokens), value)
        context = context.view(batch, heads, tokens, features).permute(2, 0, 1, 3).contiguous()
        return context.flatten(2)


def _rotated(x: Tensor) -> Tensor:
    angles = torch.empty((len(x), 1, 1, x.shape[-1]), dtype=x.dtype, device=x.device)
    first, second = x.chunk(2, dim=-1)
    return x * angles + torch.cat((-second, first), dim=-1) * angles


class FeedForward(nn.Module):
    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.gated = layout.model == "llama"
        bias = not self.gated
        self.up = ParallelLinear(layout.width, (1 + self.gated) * layout.inner, cut, apart=True, bias=bias)
        self.down = ParallelLinear(layout.inner, layout.width, cut, by_rows=True, apart=True, bias=bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        inner, bias = self.up(x)
        if bias is None:
            gate, value = inner.chunk(2, dim=-1)
            return self.down(functional.silu(gate) * value)
        return self.down(bias_gelu(inner, bias))


class Layer(nn.Module):
    """Two parts, each with its norm: before it, or behind the sum (BERT)."""

    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.dropout, self.norms_behind = layout.dropout, layout.model == "bert"
        self.attention, self.attention_norm = Attention(layout, cut), norm_of(layout)
        self.mlp, self.mlp_norm = FeedForward(layout, cut), norm_of(layout)

    def forward(self, x: Tensor) -> Tensor:
        for part, norm in ((self.attention, self.attention_norm), (self.mlp, self.mlp_norm)):
            out, bias = part(x if self.norms_behind else norm(x))
            out = out if bias is None else out + bias
            x = functional.dropout(out, p=self.dropout) + x
            if self.norms_behind:
                x = norm(x)
        return x


class FlashLayer(nn.Module):
    """flash-attn's block: samples first; where tokens are divided, samples and tokens are one dimension."""

    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.layout, self.gated = layout, layout.model == "llama_fa"
        self.heads = layout.heads // cut.parts
        bias = not self.gated
        self.norm1, self.norm2 = norm_of(layout), norm_of(layout)
        self.packed = ParallelLinear(layout.width, 3 * layout.width, cut, bias=bias)
        self.out = ParallelLinear(layout.width, layout.width, cut, by_rows=True, bias=bias)
        self.up = ParallelLinear(layout.width, (1 + self.gated) * layout.inner, cut, bias=bias)
        self.down = ParallelLinear(layout.inner, layout.width, cut, by_rows=True, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        layout = self.layout
        if layout.of_2023:
            x = functional.dropout(x, p=layout.dropout)
        packed, _ = self.packed(self.norm1(x))
        samples = packed.numel() // packed.shape[-1] // layout.length
        mixed = flash_attention(packed.view(samples, layout.length, 3, self.heads, -1))
        out, _ = self.out(mixed.reshape(*packed.shape[:-1], -1))
        x = functional.dropout(out, p=layout.dropout) + x
        inner, _ = self.up(self.norm2(x))
        if self.gated:
            value, gate = inner.chunk(2, dim=-1)
            inner = value * functional.silu(gate)
        else:
            inner = functional.gelu(inner, approximate="tanh")
        out, _ = self.down(inner)
        if layout.of_2023:
            return out
        return functional.dropout(out, p=layout.dropout) + x


class Embeddings(nn.Module):
    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.layout, self.cut = layout, cut
        self.tokens: nn.Module = VocabularyEmbedding(layout.vocabulary, layout.width, cut)
        if not layout.model.startswith("llama"):
            whole = nn.Embedding(layout.length, layout.width)
            self.positions: nn.Module = (
                whole if layout.whole_positions else VocabularyEmbedding(layout.length, layout.width, cut)
            )
        if layout.model == "bert":
            self.kinds, self.norm = nn.Embedding(2, layout.width), nn.LayerNorm(layout.width)

    def forward(self, tokens: Tensor, labels: Tensor | None = None) -> Tensor:
        layout, cut = self.layout, self.cut
        x = self.tokens(tokens)
        if not layout.model.startswith("llama"):
            positions = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
            x = x + self.positions(positions)
        if layout.model == "bert":
            x = self.norm(x + self.kinds(torch.zeros_like(tokens)))
        if not layout.samples_first:
            x = x.transpose(0, 1).contiguous()
        elif layout.by_tokens:
            x = x.flatten(0, 1)
        if cut.by_tokens and cut.parts > 1:
            x = x[: len(x) // cut.parts].clone()
        return x if layout.samples_first else functional.dropout(x, p=layout.dropout)


class PatchEmbeddings(nn.Module):
    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.patches = ParallelLinear(3 * _PATCH * _PATCH, layout.width, cut)
        self.positions = nn.Parameter(torch.empty(1, layout.length, layout.width))
        self.first = nn.Parameter(torch.empty(1, 1, layout.width))
        self.cut = cut

    def forward(self, images: Tensor) -> Tensor:
        batch, side = len(images), _IMAGE // _PATCH
        patches = images.view(batch, 3, side, _PATCH, side, _PATCH).permute(0, 2, 4, 3, 5, 1)
        x, _ = self.patches(patches.reshape(batch, side * side, -1))
        if self.cut.parts > 1:
            x = torch.cat([x] * self.cut.parts, dim=-1)
        x = torch.cat((self.first.expand(batch, -1, -1), x), dim=1) + self.positions
        return x.transpose(0, 1).contiguous()


class Head(nn.Module):
    """What turns the last states into the loss."""

    def __init__(self, layout: Layout, cut: Cut) -> None:
        super().__init__()
        self.layout, self.group = layout, cut.group
        if layout.model == "bert":
            self.transform = nn.Sequential(nn.Linear(layout.width, layout.width), nn.GELU(), nn.LayerNorm(layout.width))
        if layout.model == "vit":
            self.pooler = nn.Linear(layout.width, layout.width)
        outputs = _CLASSES if layout.model == "vit" else layout.vocabulary
        self.words = ParallelLinear(layout.width, outputs, cut, bias=layout.model == "bert")

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        layout = self.layout
        if layout.samples_first:
            logits, _ = self.words(x)
            if layout.of_2023:
                logits = logits.view(-1, layout.length, logits.shape[-1])[:, :-1].contiguous()
                return fused_loss(logits.flatten(0, 1), labels[:, :-1].reshape(-1), in_place=False)
            return fused_loss(logits.flatten(0, -2), labels.reshape(-1), in_place=True)
        if layout.model == "vit":
            x = torch.tanh(self.pooler(x.permute(1, 0, 2).contiguous()[:, 0])).unsqueeze(0)
            logits, _ = self.words(x)
            return vocabulary_loss(logits, labels.unsqueeze(0), self.group)
        if layout.model == "bert":
            logits, _ = self.words(self.transform(x))
            return vocabulary_loss(logits.flatten(0, 1), labels.reshape(-1), self.group)
        logits, _ = self.words(x)
        loss = vocabulary_loss(logits, labels.transpose(0, 1).contiguous(), self.group)
        return loss.transpose(0, 1).contiguous()


class LastNorm(nn.Module):
    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.norm, self.dropout = norm_of(layout), layout.dropout if layout.of_2023 else 0.0

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(functional.dropout(x, p=self.dropout))


def stage_units(layout: Layout, stage: int, inner: Cut, outer: Cut) -> Iterator[Unit]:
    """The units of one stage of the pipeline, in order: layers are cut by `inner`, what is around them by `outer`."""
    if stage == 0 and layout.model in ("gpt", "gpt_fa") and not layout.of_2023:
        embeddings = Embeddings(layout, outer)
        yield Unit(embeddings, tuple((embeddings, name) for name, _ in embeddings.named_children()))
    elif stage == 0:
        yield held(PatchEmbeddings(layout, outer) if layout.model == "vit" else Embeddings(layout, outer))
    for _ in range(layout.layers // layout.pipeline):
        yield held(FlashLayer(layout, inner) if layout.samples_first else Layer(layout, inner), is_layer=True)
    if stage == layout.pipeline - 1:
        if layout.model != "bert":
            yield held(LastNorm(layout))
        yield held(Head(layout, outer), takes_labels=True)
