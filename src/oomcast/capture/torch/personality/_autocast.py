"""Autocast as CUDA does it, for CPU-keyed tensors: `torch.autocast("cpu", dtype)` then follows CUDA's lists.

- Operators on CUDA's and on CPU's list under the same policy keep torch's own kernel (fast, and it holds the cache of
  cast parameters).
- Operators only on CPU's list fall through: CUDA leaves them alone.
- The others get a Python kernel of their policy. Those of lower precision share the cache of torch's kernels, so that a
  parameter used by `linear` and by `einsum` is cast once (`_cached_cast`).

Host tensors are never cast by these kernels: autocast for "cuda" would not touch them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ._autocast_lists import APPEND_DTYPE, BANNED, FP32, LOWER_PRECISION, PROMOTE, SET_DTYPE
from ._overrides import Overrides, composite, exists, overload
from ._target import on_virtual_gpu

__all__ = ["cached_cast", "install", "without_autocast"]

_KEY = "AutocastCPU"
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
_prelu_op = torch.ops.aten.prelu.default
_prelu_composite = composite(_prelu_op)
_hands_back = False

Kernel = Callable[..., Any]


def install(overrides: Overrides) -> None:
    """Put CUDA's autocast policies in place."""
    ours = {name.removeprefix("aten::") for name in torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)}
    kept = ours & {*LOWER_PRECISION, *FP32}
    for name in sorted(ours - kept):
        overrides.add(name, torch.library.fallthrough_kernel, _KEY)
    policies: tuple[tuple[tuple[str, ...], Callable[[Any], Kernel]], ...] = (
        (LOWER_PRECISION, _in_lower_precision),
        (FP32, _in_fp32),
        (SET_DTYPE, _with_fp32_dtype),
        (PROMOTE, _promoted),
        (BANNED, _banned),
    )
    for names, policy in policies:
        for name in names:
            if name not in kept and exists(name):
                overrides.add(name, policy(overload(name)), _KEY)
    for name, other in APPEND_DTYPE.items():
        overrides.add(name, _with_dtype_appended(overload(name), overload(other)), _KEY)
    overrides.add("prelu", _prelu, "AutogradCPU")


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
