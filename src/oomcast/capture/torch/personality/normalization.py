"""Normalisation as CUDA runs it: cuDNN or native batch norm, fused RMS norm, statistics in fp32.

Where CUDA's and CPU's rules differ (aten/src/ATen/native/Normalization.cpp, layer_norm.cpp, group_norm.cpp and their
CUDA kernels):

- batch norm takes cuDNN for fp32, fp64 and (with fp32 parameters) fp16 inputs of three or more dimensions;
- group norm makes its input contiguous, where CPU keeps channels-last;
- RMS norm is one fused kernel where input and weight have one dtype, on CPU and before torch 2.9 it is a composite
  (pytorch#153666 was not in when 2.8 was cut, see pytorch#157345);
- statistics of half inputs are fp32 for layer norm and batch norm; group norm's have the input's dtype, unless the
  parameters are fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ..operator_names import by_operator, operator
from .overrides import Overrides, composite
from .platforms import before, current_platform, on_virtual_gpu

__all__ = ["OUTPUT_CORRECTIONS", "PLAIN_KERNELS", "install"]

_aten = torch.ops.aten
_batch_norm_composite = composite(_aten.batch_norm.default)
_cudnn_op = _aten.cudnn_batch_norm.default
_group_norm_composite = composite(_aten.group_norm.default)
_fused_rms_norm_op = operator("_fused_rms_norm")
_HALVES = (torch.float16, torch.bfloat16)
_INT32_MAX = 2**31 - 1
_CUDNN_BATCH_TRAINING = 880_801
_CUDNN_BATCH_EVALUATION = 65_535

Optional = torch.Tensor | None


def install(overrides: Overrides) -> None:
    """Put CUDA's normalisations in place."""
    overrides.add("batch_norm", _batch_norm, "AutogradCPU")
    overrides.add("group_norm", _group_norm, "AutogradCPU")
    if _fused_rms_norm_op is not None:
        overrides.add("rms_norm", _rms_norm(_fused_rms_norm_op), "AutogradCPU")
        # Where a backend has a kernel, its autograd key holds the operator's formula; else the operator is decomposed.
        overrides.add("_fused_rms_norm", _fused_rms_norm, "CPU")


def _batch_norm(
    input: torch.Tensor,
    weight: Optional,
    bias: Optional,
    running_mean: Optional,
    running_var: Optional,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> torch.Tensor:
    if weight is None or not _takes_cudnn(input, weight, bias, running_mean, running_var, training):
        return _batch_norm_composite(
            input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
        )
    rest = (tensor.contiguous() if tensor is not None else None for tensor in (bias, running_mean, running_var))
    return _cudnn_op(_in_one_format(input), weight.contiguous(), *rest, training, momentum, eps)[0]


def _fused_rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: Optional, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """For the small tensors whose values are followed."""
    dims = tuple(range(-len(normalized_shape), 0))
    least = torch.finfo(input.dtype).eps if eps is None else eps
    inverse = torch.rsqrt(input.pow(2).mean(dims, keepdim=True) + least)
    scaled = input * inverse
    return (scaled if weight is None else scaled * weight), inverse


def _takes_cudnn(
    input: torch.Tensor, weight: torch.Tensor, bias: Optional, mean: Optional, var: Optional, training: bool
) -> bool:
    if bias is None or input.dim() < 3 or not on_virtual_gpu(input):
        return False
    if torch.bfloat16 in (input.dtype, weight.dtype):
        return False
    if input.dtype == torch.float16 and weight.dtype != torch.float32:
        return False
    has_statistics = mean is not None and var is not None
    if not has_statistics and not (mean is None and var is None and training):
        return False
    limit = _CUDNN_BATCH_TRAINING if training else _CUDNN_BATCH_EVALUATION
    return input.shape[0] <= limit and 0 < input.numel() < _INT32_MAX and _cudnn_is_on()


def _cudnn_is_on() -> bool:
    return bool(torch.backends.cudnn.enabled and current_platform().cudnn)


def _in_one_format(input: torch.Tensor) -> torch.Tensor:
    if input.is_contiguous():
        return input
    return input.contiguous(memory_format=suggest_memory_format(input))


def _group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: Optional = None,
    bias: Optional = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> torch.Tensor:
    if on_virtual_gpu(input):
        input = input.contiguous()
    return _group_norm_composite(input, num_groups, weight, bias, eps, cudnn_enabled)


def _rms_norm(fused: Any) -> Callable[..., torch.Tensor]:
    decomposed = composite(fused)

    def rms_norm(
        input: torch.Tensor, normalized_shape: list[int], weight: Optional = None, eps: float | None = None
    ) -> torch.Tensor:
        fits = on_virtual_gpu(input) and (weight is None or weight.dtype == input.dtype)
        norm = fused if fits and not before((2, 9), "RMS norm") else decomposed
        return norm(input, normalized_shape, weight, eps)[0]

    return rms_norm


def _in_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, dtype=torch.float32) if tensor.dtype in _HALVES else tensor


def _layer_norm_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    if args[0].dtype not in _HALVES or not on_virtual_gpu(args[0]):
        return out
    return (out[0], _in_fp32(out[1]), _in_fp32(out[2]))


def _group_norm_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """With fp32 parameters the statistics of a half input are fp32."""
    if args[0].dtype not in _HALVES or not on_virtual_gpu(args[0]):
        return out
    if not any(t is not None and t.dtype == torch.float32 for t in args[1:3]):
        return out
    return (out[0], _in_fp32(out[1]), _in_fp32(out[2]))


def _native_batch_norm_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """CUDA makes statistics of the accumulation type, one a channel, also in evaluation."""
    if not on_virtual_gpu(args[0]):
        return out
    dtype = torch.float32 if args[0].dtype in _HALVES else args[0].dtype
    channels = args[0].shape[1]
    if out[1].dtype == dtype and out[1].numel() == channels:
        return out
    mean, invstd = (torch.empty(channels, dtype=dtype, device=args[0].device) for _ in range(2))
    return (out[0], mean, invstd)


def _cudnn_batch_norm_kernel(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """aten/src/ATen/native/cudnn/BatchNorm.cpp: the output in the input's format; statistics when it trains."""
    input, weight, training = args[0], args[1], args[5]
    statistics = [weight.new_empty(input.shape[1] if training else 0) for _ in range(2)]
    return (_new_like(input), *statistics, input.new_empty(0, dtype=torch.uint8))


def _cudnn_batch_norm_backward_kernel(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    input, weight = args[0], args[2]
    return (_new_like(input), weight.new_empty(weight.shape), weight.new_empty(weight.shape))


def _new_like(input: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(input, memory_format=suggest_memory_format(input))


PLAIN_KERNELS: dict[Any, Callable[..., Any]] = by_operator(
    {
        "cudnn_batch_norm": _cudnn_batch_norm_kernel,
        "cudnn_batch_norm_backward": _cudnn_batch_norm_backward_kernel,
    }
)
OUTPUT_CORRECTIONS: dict[Any, Callable[..., Any]] = by_operator(
    {
        "native_layer_norm": _layer_norm_outputs,
        "native_group_norm": _group_norm_outputs,
        "native_batch_norm": _native_batch_norm_outputs,
    }
)
