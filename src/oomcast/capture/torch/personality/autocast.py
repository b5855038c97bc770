"""Autocast as CUDA does it, for CPU-keyed tensors: `torch.autocast("cpu", dtype)` then follows CUDA's lists.

- Operators on CUDA's and on CPU's list under the same policy keep torch's own kernel (fast, and it holds the cache of
  cast parameters).
- Operators only on CPU's list fall through: CUDA leaves them alone.
- The others get a Python kernel of their policy. Those of lower precision share the cache of torch's kernels, so that a
  parameter used by `linear` and by `einsum` is cast once (`cached_cast`).
- Operators that came to CUDA's list after the torch that is followed (`SINCE`) are left alone.

Host tensors are never cast by these kernels: autocast for "cuda" would not touch them.

Known limitations: the lists are those of torch 2.13 (ATen/autocast_mode.h and autocast_mode.cpp) with the dates of the
operators in `SINCE`; the dates of the others could not be established, and they are taken as always there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..operator_names import operator
from .overrides import COMPOSITES, Overrides, composite
from .platforms import before, current_platform, on_virtual_gpu

__all__ = [
    "APPEND_DTYPE",
    "BANNED",
    "FP32",
    "LOWER_PRECISION",
    "PROMOTE",
    "SET_DTYPE",
    "SINCE",
    "cached_cast",
    "install",
    "without_autocast",
]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


LOWER_PRECISION = _names("""
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr
    matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    _scaled_dot_product_flash_attention scaled_dot_product_attention
""")
"""All floating arguments go to the autocast dtype; casts of fp32 parameters are cached."""

FP32 = _names("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
    pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
    nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
    hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
    multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
    _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
""")
"""All floating arguments go to fp32."""

SET_DTYPE = _names("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
"""The optional `dtype` argument becomes fp32 where it is not given."""

APPEND_DTYPE = {"norm.Scalar": "norm.ScalarOpt_dtype", "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype"}
"""An overload with a `dtype` is called instead, with fp32."""

PROMOTE = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
"""All floating arguments go to the widest of their dtypes."""

BANNED = ("binary_cross_entropy",)
"""Refused, since in half precision it is unsafe."""

SINCE: dict[str, tuple[int, int]] = {
    # An operator of its own since 2.0; before, attention is written out, and autocast sees its parts.
    "scaled_dot_product_attention": (2, 0),
    # Asked for when torch 2.2 was out (pytorch#121072, March 2024); 2.4, the first cut after it, is assumed.
    **{name: (2, 4) for name in FP32 if "upsample" in name},
    # pytorch#174824; not registered in 2.6 to 2.11 (huggingface/diffusers#14104).
    "rms_norm": (2, 12),
}
"""Operators that joined their list, by the first version of torch that has them there."""


_KEY = "AutocastCPU"
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_prelu_op = torch.ops.aten.prelu.default
_prelu_composite = composite(_prelu_op)
_hands_back = False

Kernel = Callable[..., Any]


def install(overrides: Overrides) -> None:
    """Put CUDA's autocast policies in place."""
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)  # other libraries' operators as well
    ours = {name.removeprefix("aten::") for name in registered if name.startswith("aten::")}
    kept = ours & {*LOWER_PRECISION, *FP32}
    # torch's own kernels know no versions. They stay while the installed torch is followed; of personalities within
    # each other the outermost decides that.
    kept -= {name for name, version in SINCE.items() if current_platform().torch < version}
    # Each once: what torch registers for a CPU, and an older one registers more, may be on a list of CUDA's too.
    kernels: dict[str, Kernel] = dict.fromkeys(sorted(ours - kept), torch.library.fallthrough_kernel)
    policies: tuple[tuple[tuple[str, ...], Callable[[Any], Kernel]], ...] = (
        (LOWER_PRECISION, _in_lower_precision),
        (FP32, _in_fp32),
        (SET_DTYPE, _with_fp32_dtype),
        (PROMOTE, _promoted),
        (BANNED, _banned),
    )
    for names, policy in policies:
        for name in names:
            op = operator(name)
            if name not in kept and op is not None:
                kernel = policy(op)
                kernels[name] = _since(SINCE[name], op, kernel) if name in SINCE else kernel
    for name, other in APPEND_DTYPE.items():
        kernels[name] = _with_dtype_appended(operator(name), operator(other))
    for name, kernel in kernels.items():
        overrides.add(name, kernel, _KEY)
    overrides.add("prelu", _prelu, "AutogradCPU")


def _since(version: tuple[int, int], op: Any, kernel: Kernel) -> Kernel:
    """The kernel of a policy, from a version of torch on; before it autocast leaves the operator alone."""
    is_composite = torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    parts = composite(op) if is_composite else None

    def choosing(*args: Any, **kwargs: Any) -> Any:
        if any(_eligible(value) and value.dtype != torch.float32 for value in (*args, *kwargs.values())):
            before(version, "autocast's lists")
        if current_platform().torch >= version:
            return kernel(*args, **kwargs)
        if parts is not None:
            return COMPOSITES.get(op, parts)(*args, **kwargs)
        with without_autocast():
            return op(*args, **kwargs)

    return choosing


def without_autocast() -> Any:
    """A guard under which autocast is off, as it is inside of torch's own autocast kernels."""
    return torch._C._ExcludeDispatchKeyGuard(_AUTOCAST)


def cached_cast(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in the autocast dtype, by torch's own cache where it is an fp32 parameter.

    The cache is out of reach of Python, so a kernel that fills it is called: `prelu`'s, on the parameter; the operator
    below it then hands its (cast) argument back instead of computing.
    """
    dtype = torch.get_autocast_dtype("cpu")
    if not _eligible(tensor) or tensor.dtype == dtype:
        return tensor
    if tensor.dtype != torch.float32 or not tensor.requires_grad or not tensor.is_leaf:
        return tensor.to(dtype)
    global _hands_back
    _hands_back = True
    try:
        return _prelu_op(tensor, tensor)
    finally:
        _hands_back = False


def _prelu(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return input if _hands_back else _prelu_composite(input, weight)


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.is_floating_point()
        and value.dtype != torch.float64
        and on_virtual_gpu(value)
    )


def _map(cast: Kernel, values: tuple[Any, ...]) -> list[Any]:
    """`cast` on all tensors of an argument list, also on those in lists."""
    return [
        cast(value)
        if isinstance(value, torch.Tensor)
        else [cast(item) if isinstance(item, torch.Tensor) else item for item in value]
        if isinstance(value, (list, tuple))
        else value
        for value in values
    ]


def _call(op: Any, cast: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args_cast = _map(cast, args)
    kwargs_cast = dict(zip(kwargs, _map(cast, tuple(kwargs.values())), strict=True)) if kwargs else kwargs
    with without_autocast():
        return op(*args_cast, **kwargs_cast)


def _in_lower_precision(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, cached_cast, args, kwargs)

    return kernel


def _to_fp32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype != torch.float32 and _eligible(tensor) else tensor


def _in_fp32(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        return _call(op, _to_fp32, args, kwargs)

    return kernel


def _with_fp32_dtype(op: Any) -> Kernel:
    position = [argument.name for argument in op._schema.arguments].index("dtype")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        given = args[position] if len(args) > position else kwargs.get("dtype")
        if given is None and _eligible(args[0]):
            args = args[:position]
            kwargs = {**kwargs, "dtype": torch.float32}
        with without_autocast():
            return op(*args, **kwargs)

    return kernel


def _with_dtype_appended(op: Any, other: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not _eligible(args[0]):
            with without_autocast():
                return op(*args, **kwargs)
        named = {argument.name: argument.default_value for argument in op._schema.arguments}
        named.update(zip(named, args, strict=False))
        named.update(kwargs)
        with without_autocast():
            return other(**named, dtype=torch.float32)

    return kernel


def _promoted(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        tensors: list[torch.Tensor] = []
        _map(tensors.append, args)
        _map(tensors.append, tuple(kwargs.values()))
        wide = any(tensor.dtype == torch.float32 and _eligible(tensor) for tensor in tensors)
        widest = torch.float32 if wide else torch.get_autocast_dtype("cpu")

        def cast(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(widest) if tensor.dtype != widest and _eligible(tensor) else tensor

        return _call(op, cast, args, kwargs)

    return kernel


def _banned(op: Any) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        if _eligible(args[0]):
            raise RuntimeError(
                f"CUDA's autocast refuses {op.name()}: it is unsafe in half precision; "
                "use binary_cross_entropy_with_logits (BCEWithLogitsLoss) on the logits instead"
            )
        with without_autocast():
            return op(*args, **kwargs)

    return kernel
