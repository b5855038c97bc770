"""Apex and TransformerEngine: fused optimizers, norms and layers that hold what torch's fused ones hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....errors import BadInput

__all__ = ["DotProductAttention", "FusedAdam", "FusedLayerNorm", "FusedRMSNorm", "FusedSGD", "LayerNorm",
           "LayerNormLinear", "LayerNormMLP", "Linear", "MixedFusedLayerNorm", "MixedFusedRMSNorm", "RMSNorm",
           "fp8_autocast"]  # fmt: skip


class FusedAdam(torch.optim.Optimizer):
    """Two states in fp32, whatever the parameters' type; with `master_weights` fp32 copies of those in half precision.
    The kernel works in place."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, set_grad_none: bool = True, master_weights: bool = False,
                 **kwargs: Any) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        parameters = [p for group in self.param_groups for p in group["params"] if master_weights]
        self.masters = [p.detach().clone().float() for p in parameters if p.dtype is not torch.float32]

    @torch.no_grad()
    def step(self, closure: Any = None, *args: Any, **kwargs: Any) -> Any:
        loss = closure() if closure is not None else None
        for parameter in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(parameter.data).float()
                state["exp_avg_sq"] = torch.zeros_like(parameter.data).float()
            parameter.add_(parameter.grad, alpha=0.0)
        return loss


class FusedSGD(torch.optim.SGD):
    def __init__(self, params: Any, lr: float = 1e-3, momentum: float = 0.0, **kwargs: Any) -> None:
        super().__init__(params, lr=lr, momentum=momentum, fused=True)


class FusedLayerNorm(nn.LayerNorm):
    pass


class FusedRMSNorm(nn.RMSNorm):
    pass


MixedFusedLayerNorm, MixedFusedRMSNorm = FusedLayerNorm, FusedRMSNorm


def _device(kwargs: dict[str, Any]) -> dict[str, Any]:
    """TransformerEngine puts its layers on the GPU by itself, in `params_dtype`."""
    return {"device": kwargs.get("device", "cuda"), "dtype": kwargs.get("params_dtype")}


class Linear(nn.Linear):
    def __init__(self, in_features: int, out_features: int, bias: bool = True, **kwargs: Any) -> None:
        super().__init__(in_features, out_features, bias, **_device(kwargs))


class LayerNorm(nn.LayerNorm):
    def __init__(self, hidden_size: int, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(hidden_size, eps, **_device(kwargs))


class RMSNorm(nn.RMSNorm):
    def __init__(self, hidden_size: int, eps: float = 1e-5, **kwargs: Any) -> None:
        super().__init__(hidden_size, eps, **_device(kwargs))


class LayerNormLinear(nn.Module):
    def __init__(self, in_features: int, out_features: int, eps: float = 1e-5, bias: bool = True,
                 normalization: str = "LayerNorm", **kwargs: Any) -> None:  # fmt: skip
        super().__init__()
        self.norm = (RMSNorm if normalization == "RMSNorm" else LayerNorm)(in_features, eps, **kwargs)
        self.linear = Linear(in_features, out_features, bias, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class LayerNormMLP(nn.Module):
    def __init__(self, hidden_size: int, ffn_hidden_size: int, eps: float = 1e-5, bias: bool = True,
                 normalization: str = "LayerNorm", activation: str = "gelu", **kwargs: Any) -> None:  # fmt: skip
        super().__init__()
        self.gated = "glu" in activation
        wide = 2 * ffn_hidden_size if self.gated else ffn_hidden_size
        self.fc1 = LayerNormLinear(hidden_size, wide, eps, bias, normalization, **kwargs)
        self.fc2 = Linear(ffn_hidden_size, hidden_size, bias, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        if self.gated:
            return self.fc2(_Gated.apply(inner))
        return self.fc2(F.gelu(inner, approximate="tanh"))


class _Gated(torch.autograd.Function):
    """One kernel for both halves (`tex.swiglu`, `tex.dswiglu`): only its input is kept."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor) -> Tensor:
        ctx.save_for_backward(inner)
        return inner.new_empty(*inner.shape[:-1], inner.shape[-1] // 2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (inner,) = ctx.saved_tensors
        return torch.empty_like(inner)


class DotProductAttention(nn.Module):
    """(length, batch, heads, width) as TransformerEngine's `sbhd`, or `bshd`; fused, so no scores are held."""

    def __init__(self, num_attention_heads: int, kv_channels: Any, qkv_format: str = "sbhd", **kwargs: Any) -> None:
        super().__init__()
        self.rows_first = qkv_format == "sbhd"

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        order = (1, 2, 0, 3) if self.rows_first else (0, 2, 1, 3)
        grouped = key.shape[-2] != query.shape[-2]
        query, key, value = (part.permute(*order) for part in (query, key, value))
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
        back = (2, 0, 1, 3) if self.rows_first else (0, 2, 1, 3)
        return out.permute(*back).flatten(-2)


@contextlib.contextmanager
def fp8_autocast(enabled: bool = True, **kwargs: Any) -> Iterator[None]:
    if enabled:
        raise BadInput("TransformerEngine's fp8 needs the package itself; oomcast follows its layers in bf16 only.")
    yield
