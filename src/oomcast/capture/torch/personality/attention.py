"""`scaled_dot_product_attention` as CUDA runs it: the platform's kernel, its padding, its masks, its outputs.

torch before 2.0 has no such function: there its call stands for the operators that code of the time writes out, which
are also those of timm and of `nn.MultiheadAttention` where they find no fused attention.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import torch

from ..errors import GpuRuntimeError
from ..operator_names import by_operator, operator
from .attention_choice import AttentionCall, Backend, Mask, choose_backend, current_switches
from .overrides import Overrides, composite
from .platforms import before, current_platform, note_difference, on_virtual_gpu

__all__ = ["OUTPUT_CORRECTIONS", "install"]

_aten = torch.ops.aten
_attention_composite = composite(_aten.scaled_dot_product_attention.default)
_FLASH, _EFFICIENT, _CUDNN = (f"_scaled_dot_product_{kind}_attention" for kind in ("flash", "efficient", "cudnn"))
_flash_op: Any = operator(_FLASH)
_efficient_op: Any = operator(_EFFICIENT)
_cudnn_op: Any = operator(_CUDNN)
_safe_softmax_op = operator("_safe_softmax")
_SUBJECT = "scaled_dot_product_attention"
_HALVES = (torch.float16, torch.bfloat16)
_FLASH_HEAD_MULTIPLE = 8
_BIAS_MULTIPLE = 8
_BIAS_MULTIPLE_OF_2_1 = 16


def install(overrides: Overrides) -> None:
    """Put CUDA's choice in place of CPU's."""
    overrides.add("scaled_dot_product_attention", _attention, "AutogradCPU")


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if not on_virtual_gpu(query) or 0 in (query.numel(), key.numel(), value.numel()):
        return _attention_composite(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    _check(query, key, value, attn_mask, enable_gqa)
    call = _describe(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    backend = _choose(call)
    if backend is Backend.FLASH:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if backend is Backend.CUDNN:
        bias = _additive(attn_mask, query.dtype, -65504.0)
        return _cudnn_op(query, key, value, bias, call.needs_grad, dropout_p, is_causal, False, scale=scale)[0]
    bias = _additive(attn_mask, query.dtype, -math.inf)
    if backend is Backend.EFFICIENT:
        if bias is not None:
            bias = _for_the_efficient_kernel(bias, (*query.shape[:3], key.shape[2]))
        return _efficient_op(query, key, value, bias, call.needs_grad, dropout_p, is_causal, scale=scale)[0]
    if before((2, 0), _SUBJECT):
        return _written_out(query, key, value, bias, dropout_p, is_causal, scale, enable_gqa)
    return _math(query, key, value, bias, dropout_p, is_causal, scale, enable_gqa)


def _choose(call: AttentionCall) -> Backend:
    platform, switches = current_platform(), current_switches()
    backend = choose_backend(call, platform, switches)
    installed = platform.as_installed()
    if installed != platform:
        with contextlib.suppress(RuntimeError):
            if choose_backend(call, installed, switches) is not backend:
                note_difference(_SUBJECT)
    return backend


def _check(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, enable_gqa: bool
) -> None:
    """The mistakes in a call that torch reports itself, whichever kernel it chooses."""
    if not query.dtype == key.dtype == value.dtype:
        raise GpuRuntimeError(f"query, key and value differ in dtype: {query.dtype}, {key.dtype}, {value.dtype}")
    if not query.device == key.device == value.device:
        raise GpuRuntimeError("query, key and value are on different devices")
    if mask is not None and mask.dtype not in (torch.bool, query.dtype):
        raise GpuRuntimeError(f"attn_mask must be bool or of the query's dtype {query.dtype}, not {mask.dtype}")
    if not enable_gqa and query.dim() == key.dim() == 4:
        heads, keys = query.shape[1], key.shape[1]
        if heads != keys and 1 not in (heads, keys):
            raise GpuRuntimeError(f"the query has {heads} heads and the key {keys}, which cannot be matched")


def _describe(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool,
    enable_gqa: bool,
) -> AttentionCall:
    facts = None
    if mask is not None:
        facts = Mask(tuple(mask.shape), mask.dim() > 0 and mask.stride(-1) == 1, mask.requires_grad)
    return AttentionCall(
        query=tuple(query.shape),
        key=tuple(key.shape),
        value=tuple(value.shape),
        dtype=query.dtype,
        mask=facts,
        dropout=dropout,
        is_causal=is_causal,
        enable_gqa=enable_gqa,
        needs_grad=torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad),
        unit_strides=query.stride(-1) == key.stride(-1) == value.stride(-1) == 1,
    )


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    """Flash attention wants head sizes that are multiples of 8: others are padded by copies, the output is a slice."""
    head = query.shape[-1]
    short = -head % _FLASH_HEAD_MULTIPLE
    if not short:
        return _flash_op(query, key, value, dropout, causal, scale=scale)[0]
    padded = [_aten.constant_pad_nd.default(tensor, [0, short]) for tensor in (query, key, value)]
    scale = 1.0 / math.sqrt(head) if scale is None else scale
    return _flash_op(*padded, dropout, causal, scale=scale)[0][..., :head]


def _additive(mask: torch.Tensor | None, dtype: torch.dtype, masked_out: float) -> torch.Tensor | None:
    """A boolean mask becomes a bias of the query's dtype, in its own (unexpanded) shape."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    lowest = torch.scalar_tensor(masked_out, dtype=dtype, device=mask.device)
    return _aten.where.ScalarSelf(mask, 0.0, lowest)


def _causal_bias(query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    if bias is not None:
        raise RuntimeError("an explicit attn_mask cannot be combined with is_causal=True")
    seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return _additive(seen, query.dtype, -math.inf)


def _for_each_head(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of grouped queries, copied for all heads; both, as soon as one of them is shared."""
    heads = query.shape[-3]
    if heads == key.shape[-3] == value.shape[-3]:
        return key, value
    return (
        key.repeat_interleave(heads // key.shape[-3], -3),
        value.repeat_interleave(heads // value.shape[-3], -3),
    )


def _for_the_efficient_kernel(bias: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The kernel reads the bias in groups: where its strides forbid that, it gets a padded copy.

    torch 2.1 expands before it copies, so that each head gets a copy of its own (pytorch#104310); from 2.2 on the copy
    is made in the mask's own shape (pytorch#114173).
    """
    if before((2, 2), _SUBJECT):
        expanded = bias.expand(shape)
        if shape[-1] % _BIAS_MULTIPLE_OF_2_1:
            return _padded(expanded, _BIAS_MULTIPLE_OF_2_1)
        fits = not any(stride % _BIAS_MULTIPLE_OF_2_1 for stride in expanded.stride()[:-1])
        return expanded if fits else expanded.contiguous()
    strides = bias.stride()
    fits = strides[-1] == 1 and not any(stride % _BIAS_MULTIPLE for stride in strides[:-1])
    return (bias if fits else _padded(bias, _BIAS_MULTIPLE)).expand(shape)


def _padded(bias: torch.Tensor, multiple: int) -> torch.Tensor:
    width = bias.shape[-1]
    padded: torch.Tensor = _aten.constant_pad_nd.default(bias, [0, multiple - width % multiple])
    return padded[..., :width]


def _math(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """The composite for all other cases.

    torch's own composite cannot serve: for tensor subclasses, so for fakes, it adds the mask out of place. Since 2.5 it
    computes halves in fp32 (pytorch#128922, #135964), with a softmax that knows rows without any key.
    """
    dtype = query.dtype
    in_halves = before((2, 5), _SUBJECT)
    if dtype in _HALVES and not in_halves and not torch._C._get_math_sdp_allow_fp16_bf16_reduction():
        query, key, value = query.float(), key.float(), value.float()
    factor = math.sqrt(abs(scale)) if scale is not None else query.shape[-1] ** -0.25
    query = query * (-factor if scale is not None and scale < 0 else factor)
    bias = _causal_bias(query, key, bias) if causal else bias
    if enable_gqa:
        key, value = _for_each_head(query, key, value)
    scores = torch.matmul(query, key.transpose(-2, -1) * factor)
    del query, key
    if bias is not None:
        scores.add_(bias)
    weights = scores.softmax(-1) if in_halves or _safe_softmax_op is None else _safe_softmax_op(scores, -1)
    del scores
    if dropout > 0.0:
        weights = torch.dropout(weights, dropout, True)
    out = torch.matmul(weights, value)
    if dtype == out.dtype:
        return out
    # torch returns the weights too, cast back, and drops them at once.
    returned = weights.to(dtype)
    out = out.to(dtype)
    del returned
    return out


def _written_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """As `_scaled_dot_product_attention` of torch 1.12 (torch/nn/functional.py): only the query is scaled, and the mask
    is added without another tensor."""
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    bias = _causal_bias(query, key, bias) if causal else bias
    if enable_gqa:
        key, value = _for_each_head(query, key, value)
    weights = torch.matmul(query, key.transpose(-2, -1))
    if bias is not None:
        weights.add_(bias)
    weights = weights.softmax(-1)
    if dropout > 0.0:
        weights = torch.dropout(weights, dropout, True)
    return torch.matmul(weights, value)


def _flash_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Flash attention keeps its random state, two and one 8-byte integers, on the device; the fakes are nowhere."""
    device = args[0].device
    state = torch.empty(2, dtype=torch.uint64, device=device)
    unused = torch.empty((), dtype=torch.uint64, device=device)
    return (*out[:6], state, unused, out[8])


def _efficient_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Outside of CUDA graphs the efficient kernel keeps seed and offset on the host."""
    seed, offset = (torch.empty((), dtype=torch.int64, device="cpu") for _ in range(2))
    return (*out[:2], seed, offset)


def _cudnn_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """cuDNN makes the log-sum-exp only for training; its seed and offset are scalars on the device."""
    device = args[0].device
    keeps = args[4] if len(args) > 4 else kwargs["compute_log_sumexp"]
    lse = out[1] if keeps else torch.empty(0, dtype=torch.float32, device=device)
    seed, offset = (torch.empty((), dtype=torch.int64, device=device) for _ in range(2))
    return (out[0], lse, *out[2:6], seed, offset, out[8])


OUTPUT_CORRECTIONS: dict[Any, Callable[..., Any]] = by_operator(
    {_FLASH: _flash_outputs, _EFFICIENT: _efficient_outputs, _CUDNN: _cudnn_outputs}
)
