"""NVIDIA's extension modules as memory sees them: what each kernel allocates and keeps, without its CUDA code.

megatron-core imports apex and its extensions by name. Each is written here from its interface: outputs and what is
saved for backward are real tensors, arithmetic in place is left out.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

__all__ = ["FusedAdam", "FusedSoftmax", "apply_to_all", "in_place", "install_kernels", "module", "norm_of_all"]


def module(name: str, **members: Any) -> ModuleType:
    """An importable module with these members; its parents are made where they are missing."""
    parent, _, last = name.rpartition(".")
    made = sys.modules.get(name)
    if made is None:
        made = sys.modules[name] = ModuleType(name)
        made.__path__ = []
        if parent:
            setattr(module(parent), last, made)
    for key, value in members.items():
        setattr(made, key, value)
    return made


class FusedLayerNorm:
    """Keeps input, mean and reciprocal deviation, as torch's own."""

    @staticmethod
    def apply(x: torch.Tensor, weight: Any, bias: Any, *rest: Any) -> torch.Tensor:
        return functional.layer_norm(x, weight.shape, weight, bias)

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, shape: Any, eps: Any, memory_efficient: Any = False) -> None:
        """megatron-core asks for the names of the arguments."""


class FusedAdam(torch.optim.Optimizer):
    """Two fp32 states for each parameter; the kernel updates in place and takes nothing beside them."""

    def __init__(self, params: Any, lr: float = 1e-3, betas: Any = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0.0, **options: Any) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    for name in ("exp_avg", "exp_avg_sq"):
                        self.state[parameter][name] = torch.zeros_like(parameter, dtype=torch.float32)


def apply_to_all(operator: Any, flag: Any, tensors: Any, *arguments: Any) -> Any:
    return operator(2048 * 32, flag, tensors, *arguments)


def norm_of_all(chunk: int, flag: Any, tensors: Any, per_tensor: bool = False, *rest: Any) -> Any:
    device = tensors[0][0].device
    parts = torch.zeros(len(tensors[0]) if per_tensor else 0, device=device)
    return torch.ones(1, device=device), parts


def in_place(*arguments: Any) -> None:
    """The kernel writes into tensors that it was handed."""


class FusedSoftmax:
    """Forward has an output of its own; backward writes into the gradient that it gets."""

    @staticmethod
    def forward(scores: torch.Tensor, *rest: Any) -> torch.Tensor:
        return torch.empty_like(scores)

    @staticmethod
    def backward(gradient: torch.Tensor, *rest: Any) -> torch.Tensor:
        return gradient.contiguous()

    @staticmethod
    def get_batch_per_block(queries: int, keys: int, batch: int, heads: int) -> int:
        """As many rows of softmax as a block of 128 threads takes: four warps, two rows each where they are short."""
        return 4 * (2 if keys <= 128 else 1)


def _accumulate(x: torch.Tensor, gradient: torch.Tensor, main_grad: torch.Tensor) -> None:
    """The product is added to the fp32 gradient by the matrix multiplication itself."""


def install_kernels(*, apex: bool, engine: bool) -> None:
    """Before megatron-core is imported, which looks for them once."""
    if apex:
        module("apex")
        module("apex.normalization.fused_layer_norm", FusedLayerNormAffineFunction=FusedLayerNorm)
        module("apex.contrib.layer_norm.layer_norm", FastLayerNormFN=FusedLayerNorm)
        module("apex.optimizers", FusedAdam=FusedAdam, FusedSGD=torch.optim.SGD)
        module("apex.multi_tensor_apply", multi_tensor_applier=apply_to_all)
        module("amp_C", multi_tensor_l2norm=norm_of_all, multi_tensor_scale=in_place)
        module("fused_weight_gradient_mlp_cuda", wgrad_gemm_accum_fp32=_accumulate, wgrad_gemm_accum_fp16=_accumulate)
    if engine:
        from .engine import install_engine

        install_engine()
    for name in ("scaled_upper_triang_masked_softmax_cuda", "scaled_masked_softmax_cuda", "scaled_softmax_cuda"):
        sys.modules.setdefault(name, FusedSoftmax)  # type: ignore[arg-type]
