"""What older versions of torch did otherwise, where it decides memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["softmax_of_2022"]


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
