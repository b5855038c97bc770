"""The single operators and layers that Liger's benchmark measures, as its scripts set them up, in plain PyTorch.

A builder gets the row's settings and returns what one iteration does; gradients pile up from one to the next, as there.
Until 2025 the scripts kept Liger's own layer on the GPU beside the measured one: where that is large, so do we.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["BUILDERS", "Iteration", "Settings"]

Settings = Mapping[str, Any]
Iteration = Callable[[], object]

_VOCABULARIES = {
    "llama_3_8b": 128256,
    "qwen2.5_7b": 152064,
    "qwen2.5_72b": 152064,
    "deepseek_v2_lite": 102400,
    "deepseek_v3": 129280,
}


def _random(*shape: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device="cuda", requires_grad=grad)


def _tokens(s: Settings) -> int:
    if "model_config" in s:
        return s["bsz"] * s["seq_len"]
    return s["BT"] if "BT" in s else s["B"] * s["T"]


def _vocabulary(s: Settings) -> int:
    if "model_config" in s:
        return _VOCABULARIES[s["model_config"]]
    return s["V"] if "V" in s else s["vocab_size"]


def _modes(s: Settings, forward: Callable[[], Tensor], gradient: Tensor | None = None) -> Iteration:
    """Forward, backward or both. Older scripts make the incoming gradient once, newer ones in each iteration."""
    if s["mode"] == "forward":
        return forward
    if s["mode"] == "backward":
        output = forward()
        incoming = torch.randn_like(output) if gradient is None else gradient
        return lambda: output.backward(incoming, retain_graph=True)

    def full() -> None:
        output = forward()
        output.backward(torch.randn_like(output) if gradient is None else gradient, retain_graph=True)

    return full


def _is_old(s: Settings) -> bool:
    """Before the scripts were written anew, in 2026: other names for the sizes, gradients made once."""
    return "hidden_size" not in s


def _cross_entropy(s: Settings) -> Iteration:
    x = _random(_tokens(s), _vocabulary(s))
    target = torch.randint(_vocabulary(s), (_tokens(s),), device="cuda")
    loss = nn.CrossEntropyLoss()
    return _modes(s, lambda: loss(x, target))


def _norm_input(s: Settings) -> tuple[Tensor, Tensor | None]:
    if _is_old(s):
        x = _random(s["M"], s["N"] if "N" in s else s["H"], dtype=s["dtype"], grad=False)
        gradient = torch.randn_like(x)
        return x.requires_grad_(), gradient
    return _random(s["T"] if "T" in s else s["BT"], s["hidden_size"], dtype=s["dtype"]), None


def _layer_norm(s: Settings) -> Iteration:
    x, gradient = _norm_input(s)
    layer = nn.LayerNorm(x.shape[-1], eps=s["eps"]).to("cuda").to(s["dtype"])
    return _modes(s, lambda: layer(x), gradient)


class _RmsNorm(nn.Module):
    """transformers' LlamaRMSNorm."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


def _rms_norm(s: Settings) -> Iteration:
    x, gradient = _norm_input(s)
    layer = _RmsNorm(x.shape[-1], s["eps"]).to("cuda")
    return _modes(s, lambda: layer(x), gradient)


def _megatron_rms_norm(s: Settings) -> Iteration:
    layer = nn.RMSNorm(s["H"], eps=1e-6).to("cuda").to(torch.bfloat16)
    x = _random(s["S"], s["B"], s["H"], dtype=torch.bfloat16)

    def full() -> None:
        y = layer(x)
        y.sum().backward()

    return full


def _megatron_swiglu(s: Settings) -> Iteration:
    x = _random(s["S"], s["B"], 2 * s["ffn_local"], dtype=torch.bfloat16)

    def forward(y: Tensor) -> Tensor:
        gate, up = torch.chunk(y, 2, -1)
        return F.silu(gate) * up

    def full() -> None:
        x.grad = None
        y = forward(x)
        y.sum().backward()

    return full


class _AddRmsNorm(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        dtype = x.dtype
        x = x.to(torch.float32)
        residual = residual.to(torch.float32)
        x = x + residual
        residual = x
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype), residual.to(dtype)


def _fused_add_rms_norm(s: Settings) -> Iteration:
    if not _is_old(s):
        x, residual = (_random(s["BT"], s["hidden_size"], dtype=s["dtype"]) for _ in range(2))
        layer = _AddRmsNorm(s["hidden_size"], s["eps"]).to("cuda")
        return _modes(s, lambda: layer(x, residual)[0])
    layer = _AddRmsNorm(s["H"], s["eps"]).to("cuda")
    x, residual = (_random(s["M"], s["H"], dtype=s["dtype"]) for _ in range(2))
    gradients = torch.randn_like(x), torch.randn_like(residual)

    def full() -> None:
        y, kept = layer(x, residual)
        torch.autograd.backward((y, kept), gradients)

    return full


class _GatedMlp(nn.Module):
    """transformers' LlamaMLP."""

    def __init__(self, width: int, hidden: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


def _mlp(s: Settings) -> Iteration:
    activation = F.silu if s["hidden_act"] == "silu" else lambda x: F.gelu(x, approximate="tanh")
    x = _random(s["bsz"] if "bsz" in s else s["B"], s["T"], s["hidden_size"], dtype=s["dtype"])
    layer = _GatedMlp(s["hidden_size"], s["intermediate_size"], activation).to("cuda").to(s["dtype"])
    return _modes(s, lambda: layer(x))


def _turned(x: Tensor) -> Tensor:
    first, second = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-second, first), dim=-1)


def _rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """transformers' apply_rotary_pos_emb."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    turned_q = (q * cos) + (_turned(q) * sin)
    turned_k = (k * cos) + (_turned(k) * sin)
    return turned_q, turned_k


def _rope(s: Settings) -> Iteration:
    width = s["hidden_size"] if "hidden_size" in s else s["H"]
    tokens = s["T"] if "T" in s else s["seq_len"]
    old = "num_q_heads" in s
    heads, pairs = (s[name] for name in _HEADS[old])
    size = width // heads
    q = _random(1, tokens, heads, size, dtype=s["dtype"]).transpose(1, 2)
    k = _random(1, tokens, pairs, size, dtype=s["dtype"]).transpose(1, 2)
    dq, dk = (torch.randn_like(q), torch.randn_like(k)) if old else (None, None)
    positions = torch.arange(tokens, device="cuda").unsqueeze(0)
    frequencies = torch.rand(1, size // 2, 1, device="cuda")
    angles = (frequencies @ positions[:, None, :].float()).transpose(1, 2)
    angles = torch.cat((angles, angles), dim=-1)
    cos, sin = angles.cos().to(s["dtype"]), angles.sin().to(s["dtype"])
    del angles
    if not old:
        return _modes(s, lambda: _rotate(q, k, cos, sin)[0])

    def full() -> None:
        turned_q, turned_k = _rotate(q, k, cos, sin)
        torch.autograd.grad((turned_q, turned_k), (q, k), (dq, dk), allow_unused=True, retain_graph=True)

    return full


_HEADS = {True: ("num_q_heads", "num_kv_heads"), False: ("num_attention_heads", "num_key_value_heads")}


def _embedding(s: Settings) -> Iteration:
    layer, others = (nn.Embedding(s["V"], s["D"]).to("cuda").to(s["dtype"]) for _ in range(2))
    tokens = torch.randint(0, s["V"], (s["B"], s["T"]), device="cuda")

    def full(_beside: nn.Module = others) -> None:
        output = layer(tokens)
        output.backward(torch.randn_like(output))

    return full


def _scalar(forward: Callable[[], Tensor]) -> Iteration:
    def full() -> None:
        y = forward()
        y.backward(retain_graph=True)

    return full


def _kl_div(s: Settings) -> Iteration:
    x = _random(_tokens(s), _vocabulary(s)).log_softmax(dim=-1)
    target = _random(_tokens(s), _vocabulary(s), grad=False).softmax(dim=-1)
    loss = nn.KLDivLoss(reduction="batchmean")
    return _scalar(lambda: loss(x, target))


def _divergence(log_q: Tensor, log_p: Tensor) -> Tensor:
    """The scripts' Jensen-Shannon divergence, with their temporaries."""
    kl = nn.KLDivLoss(reduction="none", log_target=True)
    log_p, log_q = log_p.to(torch.float), log_q.to(torch.float)
    log_p, log_q = log_p.view(-1, log_p.size(-1)), log_q.view(-1, log_q.size(-1))
    m = torch.lerp(torch.exp(log_q), torch.exp(log_p), 0.5)
    loss = 0.5 * kl(torch.log(m), log_p).sum(dim=-1) + 0.5 * kl(torch.log(m), log_q).sum(dim=-1)
    return (loss / log_q.shape[0]).sum()


def _jsd(s: Settings) -> Iteration:
    x = _random(_tokens(s), _vocabulary(s)).log_softmax(dim=-1)
    target = _random(_tokens(s), _vocabulary(s), grad=False).log_softmax(dim=-1)
    return _scalar(lambda: _divergence(x, target))


def _tvd(s: Settings) -> Iteration:
    x = _random(_tokens(s), _vocabulary(s)).softmax(dim=-1)
    target = _random(_tokens(s), _vocabulary(s), grad=False).softmax(dim=-1)

    def loss() -> Tensor:
        distance = torch.abs(x - target) / 2.0
        return torch.sum(distance) / x.size(0)

    return _scalar(loss)


def _rows(s: Settings) -> Tensor:
    if "N" in s:
        return _random(s["N"], dtype=s["dtype"])
    return _random(s["BT"], s["hidden_size"], dtype=s["dtype"])


def _softmax(s: Settings) -> Iteration:
    x = _rows(s)
    return _modes(s, lambda: torch.softmax(x, dim=-1))


def _relu_squared(s: Settings) -> Iteration:
    x = _rows(s)

    def full() -> None:
        y = torch.square(F.relu(x))
        y.backward(torch.ones_like(y), retain_graph=True)

    return full


def _sparsemax_of(x: Tensor) -> Tensor:
    ordered, _ = torch.sort(x, dim=-1, descending=True)
    sums = torch.cumsum(ordered, dim=-1)
    counts = torch.arange(1, x.size(-1) + 1, device=x.device, dtype=x.dtype).view(*(1,) * (x.dim() - 1), -1)
    bound = 1 + counts * ordered
    support = bound > sums
    k = support.sum(dim=-1, keepdim=True).clamp(min=1)
    supported = (ordered * support).sum(dim=-1, keepdim=True)
    tau = (supported - 1) / k
    return torch.clamp(x - tau, min=0)


def _sparsemax(s: Settings) -> Iteration:
    rows, width = (s["B"] * s["T"], s["V"]) if "V" in s else (s["BT"], s["hidden_size"])
    x = _random(rows, width, dtype=s["dtype"])
    gradient = torch.randn_like(x) if "V" in s else None
    return _modes(s, lambda: _sparsemax_of(x), gradient)


def _group_norm(s: Settings) -> Iteration:
    if "C" in s:
        channels, x = s["C"], _random(s["M"], s["C"], s["H"], dtype=s["dtype"], grad=False)
        layer = nn.GroupNorm(channels // s["channels_per_group"], channels, eps=s["eps"]).to("cuda")
        gradient = torch.randn_like(x)
        x.requires_grad_()
        # Its memory function knows no modes: every row is of a full iteration.
        return _modes({**s, "mode": "full"}, lambda: layer(x), gradient)
    channels = s["hidden_size"]
    x = _random(max(1, s["BT"] // s["H"]), channels, s["H"], dtype=s["dtype"])
    layer = nn.GroupNorm(channels // s["channels_per_group"], channels, eps=s["eps"]).to("cuda", s["dtype"])
    return _modes(s, lambda: layer(x))


class _PolyNorm(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), 1.0 / 3.0))
        self.bias = nn.Parameter(torch.tensor(1.0))
        self.eps = eps

    def _norm(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x: Tensor) -> Tensor:
        dtype = x.dtype
        x = x.to(torch.float32)
        cube, square, plain = x**3, x**2, x**1
        cube, square, plain = self._norm(cube), self._norm(square), self._norm(plain)
        output = self.weight[0] * cube + self.weight[1] * square + self.weight[2] * plain + self.bias
        return output.to(dtype)


def _poly_norm(s: Settings) -> Iteration:
    x = _random(s["T"], s["hidden_size"], dtype=s["dtype"])
    layer = _PolyNorm(s["eps"]).to("cuda")
    return _modes(s, lambda: layer(x))


class _DynamicTanh(nn.Module):
    def __init__(self, width: int, beta: bool) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1) * 0.5)
        self.gamma = nn.Parameter(torch.ones(width))
        self.beta = nn.Parameter(torch.zeros(width)) if beta else None

    def forward(self, x: Tensor) -> Tensor:
        if self.beta is None:
            return self.gamma * torch.tanh(self.alpha * x)
        return self.gamma * torch.tanh(self.alpha * x) + self.beta


def _dyt(s: Settings) -> Iteration:
    x = _random(s["BT"], s["hidden_size"], dtype=s["dtype"])
    layer = _DynamicTanh(s["hidden_size"], s["beta"]).to("cuda")
    return _modes(s, lambda: layer(x))


def _head(s: Settings) -> nn.Linear:
    return nn.Linear(s["H"], s["V"], bias=False, dtype=s["dtype"]).to("cuda")


def _fused_linear_cross_entropy(s: Settings) -> Iteration:
    head, other = _head(s), _head(s)
    x = _random(s["BT"], s["H"], dtype=s["dtype"])
    target = torch.randint(s["V"], (s["BT"],), device="cuda")

    def full(_beside: nn.Module = other) -> None:
        logits = head(x)
        loss = F.cross_entropy(logits, target)
        del logits
        loss.backward()

    return full


def _fused_linear_jsd(s: Settings) -> Iteration:
    width, vocabulary = (s["H"], s["V"]) if "H" in s else (s["hidden_size"], s["vocab_size"])
    student, teacher = (nn.Linear(width, vocabulary, bias=False, dtype=s["dtype"], device="cuda") for _ in range(2))
    x = _random(s["BT"], width, dtype=s["dtype"])
    shown = _random(s["BT"], width, dtype=s["dtype"], grad=False)

    def loss() -> Tensor:
        student_logits = student(x)
        teacher_logits = teacher(shown)
        log_q = torch.log_softmax(student_logits / 1.0, dim=-1)
        log_p = torch.log_softmax(teacher_logits / 1.0, dim=-1)
        return _divergence(log_q, log_p).to(s["dtype"])

    if "H" not in s:
        return _modes(s, loss)

    def full() -> None:
        y = loss()
        y.backward()

    return full


def _llama4_rope(s: Settings) -> Iteration:
    width = s["hidden_size"] if "hidden_size" in s else s["H"]
    tokens = s["T"] if "T" in s else s["seq_len"]
    old = "num_q_heads" in s
    heads, pairs = (s[name] for name in _HEADS[old])
    size = width // heads
    q, k = (_random(1, tokens, count, size, dtype=s["dtype"]) for count in (heads, pairs))
    dq, dk = (torch.randn_like(q), torch.randn_like(k)) if old else (None, None)
    positions = torch.arange(tokens, device="cuda").unsqueeze(0)
    angles = (torch.rand(1, size // 2, 1, device="cuda") @ positions[:, None, :].float()).transpose(1, 2)
    turns = torch.polar(torch.ones_like(angles), angles) * 1.0
    del angles

    def rotate() -> tuple[Tensor, Tensor]:
        complex_q = torch.view_as_complex(q.float().reshape(*q.shape[:-1], -1, 2))
        complex_k = torch.view_as_complex(k.float().reshape(*k.shape[:-1], -1, 2))
        turned_q = torch.view_as_real(complex_q * turns[:, :, None, :]).flatten(3)
        turned_k = torch.view_as_real(complex_k * turns[:, :, None, :]).flatten(3)
        return turned_q.type_as(q), turned_k.type_as(k)

    if not old:
        return _modes(s, lambda: rotate()[0])

    def full() -> None:
        turned_q, turned_k = rotate()
        torch.autograd.grad((turned_q, turned_k), (q, k), (dq, dk), allow_unused=True, retain_graph=True)

    return full


class _NeighborhoodAttention(nn.Module):
    def __init__(self, width: int, heads: int, reach: int) -> None:
        super().__init__()
        self.heads, self.reach = heads, reach
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def _mask(self, tokens: int) -> Tensor:
        # The script sets it entry by entry; the same memory in one assignment.
        mask = torch.zeros(tokens, tokens, device="cuda", dtype=torch.bool)
        mask[0, 0] = True
        return mask

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        query, key, value = self.q(x), self.k(x), self.v(x)
        query = query.view(batch, tokens, self.heads, -1).transpose(1, 2)
        key = key.view(batch, tokens, self.heads, -1).transpose(1, 2)
        value = value.view(batch, tokens, self.heads, -1).transpose(1, 2)
        scores = torch.matmul(query, key.transpose(-2, -1)) * 0.125
        mask = self._mask(tokens)
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        output = torch.matmul(weights, value)
        output = output.transpose(1, 2).contiguous().view(batch, tokens, width)
        return self.out(output)


def _neighborhood_attention(s: Settings) -> Iteration:
    layer, other = (
        _NeighborhoodAttention(s["hidden_size"], s["num_heads"], s["kernel_size"]).to("cuda").to(s["dtype"])
        for _ in range(2)
    )
    x = _random(s["batch_size"], s["seq_len"], s["hidden_size"], dtype=s["dtype"])
    gradient = torch.randn_like(x)

    def full(_beside: nn.Module = other) -> None:
        y = layer(x)
        y.backward(gradient, retain_graph=True)

    return full


BUILDERS: dict[str, Callable[[Settings], Iteration]] = {
    "cross_entropy": _cross_entropy,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "megatron_rms_norm": _megatron_rms_norm,
    "fused_add_rms_norm": _fused_add_rms_norm,
    "swiglu": _mlp,
    "geglu": _mlp,
    "tiled_swiglu": _mlp,
    "tiled_geglu": _mlp,
    "megatron_swiglu": _megatron_swiglu,
    "rope": _rope,
    "embedding": _embedding,
    "kl_div": _kl_div,
    "jsd": _jsd,
    "tvd": _tvd,
    "softmax": _softmax,
    "relu_squared": _relu_squared,
    "sparsemax": _sparsemax,
    "group_norm": _group_norm,
    "poly_norm": _poly_norm,
    "dyt": _dyt,
    "fused_linear_cross_entropy": _fused_linear_cross_entropy,
    "fused_linear_jsd": _fused_linear_jsd,
    "llama4_rope": _llama4_rope,
    "fused_neighborhood_attention": _neighborhood_attention,
}
