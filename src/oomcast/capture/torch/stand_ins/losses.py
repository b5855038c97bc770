"""Losses that never hold all logits: Liger's kernels, cut cross entropy, TRL's fused head. Sources: the table beside,
and what the classes say."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["LigerCrossEntropyLoss", "LigerFusedLinearCrossEntropyLoss", "LigerRMSNorm", "LigerSwiGLUMLP",
           "LinearCrossEntropy", "apply_liger_kernel_to_llama", "apply_liger_kernel_to_mistral",
           "apply_liger_kernel_to_qwen2", "apply_liger_kernel_to_qwen3", "chunked_log_likelihoods",
           "linear_cross_entropy"]  # fmt: skip


class _FusedLinearCrossEntropy(torch.autograd.Function):
    """Logits of a few rows at a time, whose place their gradients take at once: backward scales what is there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, target: Tensor, bias: Tensor | None) -> Tensor:
        rows, width = x.shape
        parts = -(-weight.shape[0] // width)
        chunk = 1 << (max(-(-rows // parts), 1) - 1).bit_length()
        in_weight = torch.zeros_like(weight) if weight.requires_grad else None
        in_bias = torch.zeros_like(bias) if bias is not None and bias.requires_grad else None
        in_x, losses = torch.zeros_like(x), x.new_zeros(rows, dtype=torch.float32)
        for start in range(0, rows, chunk):
            piece = x[start : start + chunk]
            logits = piece @ weight.t()
            in_x[start : start + chunk] = logits @ weight
            if in_weight is not None:
                torch.addmm(in_weight, logits.t(), piece, out=in_weight)
        ctx.save_for_backward(in_x, in_weight, in_bias)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        in_x, in_weight, in_bias = ctx.saved_tensors
        return in_x, in_weight, None, in_bias


class LigerFusedLinearCrossEntropyLoss(nn.Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, lin_weight: Tensor, _input: Tensor, target: Tensor, bias: Tensor | None = None) -> Tensor:
        return _FusedLinearCrossEntropy.apply(_input, lin_weight, target, bias)


class _CrossEntropy(torch.autograd.Function):
    """The gradient takes the logits' place in the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        losses = logits.new_zeros(logits.shape[0], dtype=torch.float32)
        ctx.save_for_backward(logits)
        return losses.sum()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (logits,) = ctx.saved_tensors
        return logits


class LigerCrossEntropyLoss(nn.Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, _input: Tensor, target: Tensor) -> Tensor:
        return _CrossEntropy.apply(_input)


class _SiluTimes(torch.autograd.Function):
    """Both gradients take the places of what was kept."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return torch.empty_like(gate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return ctx.saved_tensors


class LigerSwiGLUMLP(nn.Module):
    def __init__(self, config: Any) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(_SiluTimes.apply(self.gate_proj(x), self.up_proj(x)))


class _RmsNorm(torch.autograd.Function):
    """Keeps its input and a number for each row; the gradient takes the place of the one that comes in."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        _, weight, _ = ctx.saved_tensors
        each = torch.cuda.get_device_properties(0).multi_processor_count
        parts = weight.new_empty(each, *weight.shape, dtype=torch.float32)
        return gradient.contiguous(), parts.sum(0).to(weight.dtype)


class LigerRMSNorm(nn.Module):
    def __init__(self, hidden_size: int, eps: float = 1e-6, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return _RmsNorm.apply(hidden_states, self.weight)


def _forward_with_fused_loss(self: Any, input_ids: Any = None, labels: Any = None, **kwargs: Any) -> Any:
    """A causal language model's forward whose loss makes its own logits."""
    outputs = importlib.import_module("transformers.modeling_outputs")
    for name in ("return_dict", "num_items_in_batch", "logits_to_keep"):
        kwargs.pop(name, None)
    hidden = self.model(input_ids=input_ids, **kwargs).last_hidden_state
    if labels is None:
        return outputs.CausalLMOutputWithPast(logits=self.lm_head(hidden))
    rows = hidden.view(-1, hidden.shape[-1])
    wanted = nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].reshape(-1)
    loss = _FusedLinearCrossEntropy.apply(rows, self.lm_head.weight, wanted, self.lm_head.bias)
    return outputs.CausalLMOutputWithPast(loss=loss)


def _apply_to(kind: str, prefix: str) -> Any:
    def apply(
        rope: bool = True,
        cross_entropy: bool = False,
        fused_linear_cross_entropy: bool = True,
        rms_norm: bool = True,
        swiglu: bool = True,
        model: Any = None,
    ) -> None:
        library = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
        if rms_norm:
            getattr(library, f"{prefix}RMSNorm").forward = lambda self, x: _RmsNorm.apply(x, self.weight)
        if swiglu:
            getattr(library, f"{prefix}MLP").forward = LigerSwiGLUMLP.forward
        if fused_linear_cross_entropy:
            getattr(library, f"{prefix}ForCausalLM").forward = _forward_with_fused_loss

    return apply


apply_liger_kernel_to_llama = _apply_to("llama", "Llama")
apply_liger_kernel_to_mistral = _apply_to("mistral", "Mistral")
apply_liger_kernel_to_qwen2 = _apply_to("qwen2", "Qwen2")
apply_liger_kernel_to_qwen3 = _apply_to("qwen3", "Qwen3")


class _CutCrossEntropy(torch.autograd.Function):
    """Forward: two numbers for each token, and the mean logit of each word, by which backward orders its work."""

    @staticmethod
    def forward(ctx: Any, e: Tensor, c: Tensor) -> Tensor:
        tokens = e.shape[:-1].numel()
        sums, means = e.new_empty(tokens, dtype=torch.float32), e.new_zeros(c.shape[0], dtype=torch.float32)
        losses = e.new_empty(tokens, dtype=torch.float32)
        ctx.save_for_backward(e, c, sums, means)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        e, c, _, means = ctx.saved_tensors
        order = torch.argsort(means).to(torch.int32)
        in_e = torch.zeros_like(e)
        in_c = torch.zeros_like(c, dtype=e.dtype) if ctx.needs_input_grad[1] else None
        del order
        return in_e, None if in_c is None else in_c.to(c.dtype)


def linear_cross_entropy(e: Tensor, c: Tensor, targets: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """`e`: what the head reads; `c`: the head's weight."""
    return _CutCrossEntropy.apply(e, c)


class LinearCrossEntropy(nn.Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, e: Tensor, c: Tensor, targets: Tensor) -> Tensor:
        return linear_cross_entropy(e, c, targets)


_TOKENS_AT_ONCE, _WORDS_AT_ONCE = 4096, 32768
"""Of TRL's tiles: TOKEN_CHUNK_SIZE and _CHUNKED_LOGPROB_CHUNK_SIZE."""


class _ChunkedLogLikelihoods(torch.autograd.Function):
    """As trl/kernels/chunked_logprob.py of TRL 1.16: a tile of logits at a time, of which some numbers for each token
    stay; backward makes each tile anew and sums the gradients in fp32."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
        each = [torch.zeros(hidden.shape[0], dtype=torch.float32, device=hidden.device) for _ in range(7)]
        ctx.dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
        for tile, words, rows in _tiles(hidden, weight, ctx.dtype):
            torch.mm(rows, words.t(), out=tile)
        sums, entropies = each[0] + torch.log(each[1]), each[2] / each[1]
        ctx.save_for_backward(hidden, weight, bias, targets, sums, entropies)
        return each[-1] - sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        hidden, weight, bias, *_ = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        in_hidden = torch.zeros_like(hidden, dtype=torch.float32) if needs_hidden else None
        in_weight = torch.zeros_like(weight, dtype=torch.float32) if needs_weight else None
        in_bias = torch.zeros_like(bias, dtype=torch.float32) if needs_bias else None
        for tile, words, rows in _tiles(hidden, weight, ctx.dtype):
            torch.mm(rows, words.t(), out=tile)
        return (
            None if in_hidden is None else in_hidden.to(hidden.dtype),
            None if in_weight is None else in_weight.to(weight.dtype),
            None if in_bias is None else in_bias.to(bias.dtype),
            None,
        )


def _tiles(hidden: Tensor, weight: Tensor, dtype: torch.dtype) -> Any:
    """Parts of one buffer for logits, with the head's rows and the tokens that they are computed from."""
    buffer = hidden.new_empty(min(hidden.shape[0], _TOKENS_AT_ONCE), _WORDS_AT_ONCE, dtype=dtype)
    for tokens in hidden.split(_TOKENS_AT_ONCE):
        rows = tokens.to(dtype)
        for part in weight.split(_WORDS_AT_ONCE):
            yield buffer[: rows.shape[0], : part.shape[0]], part.to(dtype), rows


def chunked_log_likelihoods(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor) -> Tensor:
    """How likely each target is, as its logarithm."""
    return _ChunkedLogLikelihoods.apply(hidden, weight, bias, targets)
