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


def make_optimizer(name: str, parameters: Iterable[Any]) -> optim.Optimizer:
    """`adam`, `adam-fused`, `sgd-momentum-forloop`, `adamw-8bit`, … over what is trained, or groups of it.

    What torch would choose on CUDA (foreach, for most) it chooses here, unless the name fixes it.
    """
    base, variant = split_optimizer(name)
    kind = OPTIMIZER_KINDS[base]
    classes: Any = optim if kind.library == "torch" else _classes_of(kind.library, name)
    make = getattr(classes, kind.class_name, None)  # Adafactor came with torch 2.5
    if make is None:
        there = [base for base, other in OPTIMIZER_KINDS.items() if hasattr(optim, other.class_name)]
        raise missing_optimizer(f"torch {torch.__version__}", name, there)
    optimizer: optim.Optimizer = make(
        parameters, lr=_LEARNING_RATES.get(kind.class_name, 1e-3), **kind.options, **VARIANTS.get(variant, {})
    )
    if hasattr(optimizer, "is_paged"):
        optimizer.is_paged = False  # managed memory is the driver's: it stays on the GPU while there is room
    return optimizer


def _classes_of(library: str, name: str) -> Any:
    try:
        return importlib.import_module(f"{library}.optim")
    except ModuleNotFoundError:
        raise BadInput(f"the optimizer {name} needs {library}; install it with: pip install {library}") from None


class MasterWeights:
    """Half-precision weights whose optimizer works on fp32 copies, as DeepSpeed's and Megatron's mixed precision."""

    def __init__(self, name: str, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.copies = [nn.Parameter(parameter.detach().float()) for parameter in parameters]
        self.optimizer = make_optimizer(name, self.copies)

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

    def __init__(self, name: str, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(_Step(make_optimizer(name, [parameter])))

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
