"""The Transformer LM whose training steps were recorded, written from its description, in its two known spellings.

CS336's assignment describes the model: RMSNorm, RoPE, SwiGLU, causal attention written out, untied head, no biases, its
own cross entropy and AdamW. Every student writes the same mathematics with other temporaries, and the recordings carry
the lines that asked for memory: `WEIGHT_FIRST` is how `kkaitlyn_*` were written (weights before inputs in a product,
rotations written into zeros, in-place Adam), `INPUT_FIRST` how `wedsonlin_*` were (out-of-place Adam, log-softmax).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["INPUT_FIRST", "WEIGHT_FIRST", "Sizes", "Spelling"]


@dataclass(frozen=True)
class Sizes:
    """The published configuration."""

    width: int
    hidden: int
    layers: int
    heads: int
    context: int
    vocabulary: int = 10_000
    batch: int = 4

    @property
    def head(self) -> int:
        return self.width // self.heads


@dataclass(frozen=True)
class Spelling:
    """One way to write the step: the model, the loss and the optimizer."""

    model: Callable[[Sizes], nn.Module]
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def _angles(sizes: Sizes) -> Tensor:
    frequencies = 10_000.0 ** -(torch.arange(0, sizes.head, 2) / sizes.head)
    return torch.outer(torch.arange(sizes.context), frequencies)


class _Embedding(nn.Module):
    def __init__(self, sizes: Sizes, device: str | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(sizes.vocabulary, sizes.width, device=device))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.weight[tokens]


class _Decoder(nn.Module):
    """Embedding, blocks, norm, head; the parts come from the spelling."""

    def __init__(
        self, sizes: Sizes, block: Callable[[], nn.Module], norm: nn.Module, head: nn.Module, device: str | None
    ):
        super().__init__()
        self.embedding = _Embedding(sizes, device)
        self.layers = nn.ModuleList(block() for _ in range(sizes.layers))
        self.norm = norm
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x)


# -- weights first: built on the GPU, rotations written into zeros ---------------------------------------------------


class _WeightFirstLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(outputs, inputs, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        # `einsum("oi,...i->...o", weight, x)`, as torch carried it out then; newer versions exchange the two.
        columns = x.flatten(0, -2).T
        return torch.bmm(self.weight.unsqueeze(0), columns.unsqueeze(0)).squeeze(0).T.unflatten(0, x.shape[:-1])


class _VectorNormRms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32)
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        rms = torch.sqrt(norm**2 / self.width + 1e-5)
        normed = x / rms
        return torch.einsum("d,bsd->bsd", self.weight, normed)


class _PairwiseRope(nn.Module):
    table: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        angles = _angles(sizes)
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin()), dim=-1).to("cuda"))

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        pairs = x.unflatten(-1, (-1, 2))
        cos = self.table[positions, :, 0]
        sin = self.table[positions, :, 1]
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        turned = torch.zeros_like(pairs)
        turned[..., 0] = cos * pairs[..., 0] - sin * pairs[..., 1]
        turned[..., 1] = sin * pairs[..., 0] + cos * pairs[..., 1]
        return turned.reshape(x.shape)


def _softmax(x: Tensor) -> Tensor:
    highest = torch.max(x, dim=-1, keepdim=True)[0]
    exponent = torch.exp(x - highest)
    total = torch.sum(exponent, dim=-1, keepdim=True)
    return exponent / total


def _masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", q, k)
    scores = scores / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(mask == False, -1e9)  # noqa: E712 - the comparison allocates, as recorded
    weights = _softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class _WeightFirstAttention(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.q, self.k, self.v, self.out = (_WeightFirstLinear(sizes.width, sizes.width) for _ in range(4))
        self.rope = _PairwiseRope(sizes)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        flat_q, flat_k, flat_v = self.q(x), self.k(x), self.v(x)
        q = flat_q.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = flat_k.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = flat_v.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        positions = torch.arange(tokens, device=x.device).unsqueeze(0).expand(batch, -1)
        q = self.rope(q, positions)
        k = self.rope(k, positions)
        mask = torch.triu(torch.ones(tokens, tokens, device=x.device), diagonal=1).to(torch.bool)
        mask = ~mask
        mask = mask.unsqueeze(0).unsqueeze(0).expand(batch, self.heads, -1, -1)
        result = _masked_attention(q, k, v, mask)
        result = result.transpose(1, 2).reshape(batch, tokens, -1)
        return self.out(result)


class _WeightFirstSwiglu(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = _WeightFirstLinear(sizes.width, sizes.hidden)
        self.down = _WeightFirstLinear(sizes.hidden, sizes.width)
        self.up = _WeightFirstLinear(sizes.width, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        up = self.up(x)
        active = torch.sigmoid(gate) * gate
        product = active * up
        return self.down(product)


class _WeightFirstBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm1 = _VectorNormRms(sizes.width)
        self.attention = _WeightFirstAttention(sizes)
        self.norm2 = _VectorNormRms(sizes.width)
        self.feed_forward = _WeightFirstSwiglu(sizes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm1(x)
        h = self.attention(h)
        x = x + h
        h = self.norm2(x)
        h = self.feed_forward(h)
        return x + h


def _weight_first_model(sizes: Sizes) -> nn.Module:
    norm, head = _VectorNormRms(sizes.width), _WeightFirstLinear(sizes.width, sizes.vocabulary)
    return _Decoder(sizes, lambda: _WeightFirstBlock(sizes), norm, head, "cuda")


def _indexed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    logits = logits.reshape(-1, logits.size(-1))
    targets = targets.reshape(-1)
    highest = torch.max(logits, dim=-1, keepdim=True).values
    logits = logits - highest
    exponent = torch.exp(logits)
    total = exponent.sum(dim=-1)
    rows = torch.arange(logits.shape[0])
    chosen = logits[rows, targets]
    losses = torch.log(total) - chosen
    return losses.mean()


class _InPlaceAdamW(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.01})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                gradient = p.grad.data
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p.data)
                    state["v"] = torch.zeros_like(p.data)
                m, v = state["m"], state["v"]
                state["step"] += 1
                m.mul_(beta1).add_(gradient, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
                correction = math.sqrt(1 - beta2 ** state["step"])
                denominator = (v.sqrt() / correction).add_(group["eps"])
                p.data.addcdiv_(m, denominator, value=-lr / (1 - beta1 ** state["step"]))
                p.data.add_(p.data, alpha=-lr * group["weight_decay"])


WEIGHT_FIRST = Spelling(_weight_first_model, _indexed_cross_entropy, _InPlaceAdamW)


# -- inputs first: built on the host and moved, Adam out of place ----------------------------------------------------


class _InputFirstLinear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class _MeanSquareRms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return self.weight * x


class _HalvesRope(nn.Module):
    table: Tensor

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        angles = _angles(sizes)
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin())))

    def forward(self, x: Tensor) -> Tensor:
        x1, x2 = x.unflatten(-1, (-1, 2)).movedim(-1, 0).unbind(0)
        cos, sin = self.table[:, : x.size(-2), :].unbind(0)
        turned1 = cos * x1 - sin * x2
        turned2 = sin * x1 + cos * x2
        return torch.concat((turned1, turned2), dim=-1)


def _shifted_softmax(x: Tensor) -> Tensor:
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    exponent = torch.exp(shifted)
    return exponent / torch.sum(exponent, dim=-1, keepdim=True)


def _where_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = _shifted_softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class _InputFirstAttention(nn.Module):
    def __init__(self, sizes: Sizes, rope: nn.Module) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.q, self.k, self.v, self.out = (_InputFirstLinear(sizes.width, sizes.width) for _ in range(4))
        self.rope = rope

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        q, k, v = self.q(x), self.k(x), self.v(x)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        q = self.rope(q)
        k = self.rope(k)
        places = torch.arange(tokens, device=x.device)
        mask = places.unsqueeze(1) >= places.unsqueeze(0)
        mask = mask[None, ...]
        output = _where_attention(q, k, v, mask)
        output = output.transpose(1, 2).reshape(batch, tokens, -1).contiguous()
        return self.out(output)


class _InputFirstSwiglu(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = _InputFirstLinear(sizes.width, sizes.hidden)
        self.down = _InputFirstLinear(sizes.hidden, sizes.width)
        self.up = _InputFirstLinear(sizes.width, sizes.hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(_silu(self.gate(x)) * self.up(x))


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


class _InputFirstBlock(nn.Module):
    def __init__(self, sizes: Sizes, rope: nn.Module) -> None:
        super().__init__()
        self.attention = _InputFirstAttention(sizes, rope)
        self.feed_forward = _InputFirstSwiglu(sizes)
        self.norm1, self.norm2 = _MeanSquareRms(sizes.width), _MeanSquareRms(sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        from_attention = self.attention(self.norm1(x))
        middle = x + from_attention
        from_feed_forward = self.feed_forward(self.norm2(middle))
        return middle + from_feed_forward


def _input_first_model(sizes: Sizes) -> nn.Module:
    rope = _HalvesRope(sizes)
    norm, head = _MeanSquareRms(sizes.width), _InputFirstLinear(sizes.width, sizes.vocabulary)
    return _Decoder(sizes, lambda: _InputFirstBlock(sizes, rope), norm, head, None).to("cuda")


def _log_softmax(x: Tensor) -> Tensor:
    highest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - highest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def _gathered_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    losses = -_log_softmax(logits)
    return torch.mean(torch.gather(losses, -1, targets.unsqueeze(-1)))


class _OutOfPlaceAdamW(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01})

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            lr, (beta1, beta2) = group["lr"], group["betas"]
            for p in group["params"]:
                gradient = p.grad.data
                state = self.state[p]
                t = state.get("t", 1)
                p.data -= lr * group["weight_decay"] * p.data
                before_m = state.get("m", torch.zeros_like(gradient))
                before_v = state.get("v", torch.zeros_like(gradient))
                m = beta1 * before_m + (1 - beta1) * gradient
                v = beta2 * before_v + (1 - beta2) * torch.square(gradient)
                rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                p.data -= rate * m / (torch.sqrt(v) + group["eps"])
                state["m"], state["v"], state["t"] = m, v, t + 1


INPUT_FIRST = Spelling(_input_first_model, _gathered_cross_entropy, _OutOfPlaceAdamW)
