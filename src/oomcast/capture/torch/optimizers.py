"""Optimizers by name, and the two ways in which training loops wrap them: fp32 copies, and steps within backward."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn, optim

from ...errors import BadInput
from ...spec import OPTIMIZER_KINDS, VARIANTS, missing_optimizer, split_optimizer

__all__ = ["MasterWeights", "OptimizerInBackward", "make_optimizer"]

_LEARNING_RATES = {"SGD": 0.01}
"""Of classes that torch gives none by default, or another than 0.001."""


def make_optimizer(name: str, parameters: Iterable[Any], version: tuple[int, int] | None = None) -> Any:
    """`adam`, `adam-fused`, `sgd-momentum-forloop`, `adamw-8bit`, … over what is trained, or groups of it.

    What torch would choose on CUDA (foreach, for most) it chooses here, unless the name fixes it. `version` is the one
    whose behaviour is followed, where it is not the installed one's.
    """
    base, variant = split_optimizer(name)
    kind = OPTIMIZER_KINDS[base]
    classes: Any = optim if kind.library == "torch" else _classes_of(kind.library, name)
    if kind.offloads:
        of_host = getattr(optim, kind.class_name)
        with_gradients = kind.offloads == "gradients"
        return classes.CPUOffloadOptimizer(parameters, of_host, offload_gradients=with_gradients, lr=1e-3, fused=True)
    make = getattr(classes, kind.class_name, None)  # Adafactor came with torch 2.5, Muon with 2.9
    if make is None:
        there = [base for base, other in OPTIMIZER_KINDS.items() if hasattr(optim, other.class_name)]
        raise missing_optimizer(f"torch {torch.__version__}", name, there)
    if base in ("adam", "adamw") and _has_two_temporaries(version, variant):
        return _TwoTemporaries(parameters)
    if kind.matrices_only:
        matrices, others = _matrices(parameters)
        parts = [make(matrices, lr=1e-3)] if matrices else []
        return _Together([*parts, *([optim.AdamW(others, lr=1e-3)] if others else [])])
    if kind.rank:
        matrices, others = _matrices(parameters)
        low_rank: dict[str, Any] = {"rank": kind.rank, "update_proj_gap": 200, "scale": 0.25, "projection_type": "std"}
        if base == "apollo":
            low_rank["scale_type"] = "channel"
        groups: list[dict[str, Any]] = [{"params": matrices, **low_rank}, {"params": others}]
        parameters = [group for group in groups if group["params"]]
    optimizer: optim.Optimizer = make(
        parameters, lr=_LEARNING_RATES.get(kind.class_name, 1e-3), **kind.options, **VARIANTS.get(variant, {})
    )
    if hasattr(optimizer, "is_paged"):
        optimizer.is_paged = False  # managed memory is the driver's: it stays on the GPU while there is room
    return optimizer


def _classes_of(library: str, name: str) -> Any:
    module = library if library == "pytorch_optimizer" else f"{library}.optim"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        package = library.replace("_", "-")
        raise BadInput(
            f"the optimizer {name} needs {package}; install it with: pip install {package} (--no-deps keeps torch)"
        ) from None


def _matrices(parameters: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """What has two dimensions, and the rest."""
    everything = [q for p in parameters for q in (p["params"] if isinstance(p, dict) else [p])]
    return [p for p in everything if p.dim() == 2], [p for p in everything if p.dim() != 2]


class _Together:
    """Several optimizers that step as one."""

    def __init__(self, parts: list[optim.Optimizer]) -> None:
        self.parts = parts
        self.param_groups = [group for part in parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        for part in self.parts:
            part.step()


_ONE_TEMPORARY = (2, 1)
"""From this torch on (July 2023), foreach Adam computes the denominator in the place of the square root."""
_FOREACH_BY_DEFAULT = (2, 0)


def _has_two_temporaries(version: tuple[int, int] | None, variant: str) -> bool:
    if version is None or version >= _ONE_TEMPORARY:
        return False
    return variant == "foreach" or (variant == "" and version >= _FOREACH_BY_DEFAULT)


class _TwoTemporaries(optim.Optimizer):
    """foreach Adam and AdamW before torch 2.1: square root and denominator are two sets of temporaries, not one."""

    def __init__(self, parameters: Iterable[Any], lr: float = 5e-5) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            for p in trained:
                if not self.state[p]:
                    self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
            for alike in _by_type(trained):
                self._step(alike, group["lr"])

    def _step(self, trained: list[Any], rate: float) -> None:
        gradients = [p.grad for p in trained]
        averages = [self.state[p]["exp_avg"] for p in trained]
        squares = [self.state[p]["exp_avg_sq"] for p in trained]
        torch._foreach_mul_(averages, 0.9)
        torch._foreach_add_(averages, gradients, alpha=0.1)
        torch._foreach_mul_(squares, 0.999)
        torch._foreach_addcmul_(squares, gradients, gradients, 0.001)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, 0.03)
        denominators = torch._foreach_add(roots, 1e-8)
        torch._foreach_addcdiv_(trained, averages, denominators, -rate)


def _by_type(parameters: list[Any]) -> list[list[Any]]:
    groups: dict[torch.dtype, list[Any]] = {}
    for parameter in parameters:
        groups.setdefault(parameter.dtype, []).append(parameter)
    return list(groups.values())


class MasterWeights:
    """Half-precision weights whose optimizer works on fp32 copies, as DeepSpeed's and Megatron's mixed precision."""

    def __init__(self, name: str, parameters: list[nn.Parameter], version: tuple[int, int] | None = None) -> None:
        self.parameters = parameters
        self.copies = [nn.Parameter(parameter.detach().float()) for parameter in parameters]
        self.optimizer = make_optimizer(name, self.copies, version)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        for parameter, copy in zip(self.parameters, self.copies, strict=True):
            parameter.copy_(copy)


class OptimizerInBackward:
    """An optimizer for each parameter, which steps when its gradient is there: gradients are never held together."""

    def __init__(self, name: str, parameters: list[nn.Parameter], version: tuple[int, int] | None = None) -> None:
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(_Step(make_optimizer(name, [parameter], version)))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing is left to drop."""

    def step(self) -> None:
        """Done in backward."""


class _Step:
    def __init__(self, optimizer: optim.Optimizer) -> None:
        self.optimizer = optimizer

    def __call__(self, parameter: torch.Tensor) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
