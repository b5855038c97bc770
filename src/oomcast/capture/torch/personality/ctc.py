"""`ctc_loss` as CUDA runs it without cuDNN: torch's own kernel, on lengths read by the host.

torch has no fake kernel for it, since sizes depend on the lengths. Where these are fake, the longest that fit stand in.
cuDNN's kernel is taken only for targets on the host, in int32, joined; it is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from .overrides import Overrides, composite
from .platforms import on_virtual_gpu

__all__ = ["FAKE_KERNELS", "SCRATCH", "install"]

_aten = torch.ops.aten
_MEAN, _SUM = 1, 2


def install(overrides: Overrides) -> None:
    """Put CUDA's `ctc_loss` in place."""
    overrides.add("ctc_loss.IntList", _ctc_loss(_aten.ctc_loss.IntList), "AutogradCPU")
    overrides.add("ctc_loss.Tensor", _ctc_loss(_aten.ctc_loss.Tensor), "AutogradCPU")


def _lengths(lengths: Any, batch: int, longest: int) -> list[int]:
    if isinstance(lengths, FakeTensor):
        if lengths.constant is None:
            return [longest] * batch
        lengths = lengths.constant
    return [int(length) for length in (lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths)]


def _ctc_loss(op: Any) -> Callable[..., torch.Tensor]:
    usual = composite(op)

    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: int = _MEAN,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        if not on_virtual_gpu(log_probs):
            return usual(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)
        batched = log_probs.dim() == 3
        batch = log_probs.shape[1] if batched else 1
        longest = targets.shape[-1] if targets.dim() == 2 or not batched else targets.numel()
        steps = _lengths(input_lengths, batch, log_probs.shape[0])
        symbols = _lengths(target_lengths, batch, longest)
        loss = _aten._ctc_loss.default(
            log_probs if batched else log_probs.unsqueeze(1), targets, steps, symbols, blank, zero_infinity
        )[0]
        if zero_infinity:
            zero = torch.zeros((), dtype=loss.dtype, device=loss.device)
            loss = torch.where(loss == float("inf"), zero, loss)
        if reduction == _MEAN:
            counts = torch.ones(batch, dtype=loss.dtype, device=loss.device)
            return (loss / counts).mean()
        if reduction == _SUM:
            return loss.sum()
        return loss if batched else loss.squeeze(0)

    return ctc_loss


def _fake_ctc_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The losses, and the forward variables: batch, time steps, twice the longest target plus one."""
    log_probs, lengths = args[0], args[3]
    steps, batch = log_probs.shape[:2]
    longest = max(lengths, default=0)
    new = {"dtype": log_probs.dtype, "device": log_probs.device}
    return torch.empty(batch, **new), torch.empty(batch, steps, 2 * longest + 1, **new)


def _fake_ctc_loss_backward(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.empty_like(args[1], memory_format=torch.contiguous_format)


FAKE_KERNELS: dict[Any, Callable[..., Any]] = {
    _aten._ctc_loss.default: _fake_ctc_loss,
    _aten._ctc_loss_backward.default: _fake_ctc_loss_backward,
}


def _ctc_backward_scratch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
    return (args[6].numel() * args[6].itemsize,)


SCRATCH: dict[str, Callable[[tuple[Any, ...], dict[str, Any]], tuple[int, ...]]] = {
    "_ctc_loss_backward": _ctc_backward_scratch,
}
