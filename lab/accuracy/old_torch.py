"""What older versions of torch did otherwise, where it decides memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

__all__ = ["AdamOf2023", "softmax_of_2022"]


class _SoftmaxKeepingItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, half_to_float: bool) -> Tensor:
        y = torch._softmax(x, -1, half_to_float)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        x, y = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, y, -1, x.dtype), None


def softmax_of_2022(scores: Tensor) -> Tensor:
    """Until 1.10 torch kept softmax's input for the backward pass, beside its output.

    Under autocast it is computed in fp32 from what it is given.
    """
    half_to_float = torch.is_autocast_enabled("cuda") and scores.dtype is torch.float16
    result: Tensor = _SoftmaxKeepingItsInput.apply(scores, half_to_float)
    return result


class AdamOf2023(torch.optim.Optimizer):
    """foreach Adam before July 2023: the square root and the denominator are two sets of temporaries, not one."""

    def __init__(self, parameters: Iterable[Tensor], lr: float = 5e-5) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            for p in trained:
                if not self.state[p]:
                    self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
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
            torch._foreach_addcdiv_(trained, averages, denominators, -group["lr"])
