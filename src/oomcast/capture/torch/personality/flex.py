"""Flex attention: the memory of its compiled kernel.

`torch.compile` makes one Triton kernel of the attention and its score function: it writes the output and, for
backward, the logarithm of each row's sum (torch/_inductor/kernel/flex/flex_attention.py). Its backward takes a sum per
row and writes the three gradients. Scores are never held. Called without `torch.compile`, torch itself warns that it
holds them all; nobody trains so. Within a compiled region, torch's own operator is traced and lowered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ..patches import Patches

__all__ = ["let_flex_attention_run"]


def let_flex_attention_run(patches: Patches, assume: Callable[[str], None], is_compiling: Callable[[], bool]) -> None:
    """Once the job has loaded torch's module: from then on its operator takes the memory of its kernel."""
    module = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None or getattr(type(module.flex_attention_hop).__call__, "is_ours", False):
        return
    operator = type(module.flex_attention_hop)
    trace = operator.__call__

    def call(hop: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return trace(hop, *args, **kwargs)
        assume("flex attention: the memory of its compiled kernel is taken")
        return _run_kernel(*args, **kwargs)

    call.is_ours = True  # type: ignore[attr-defined]
    patches.set(operator, "__call__", call)


class _Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        if query.shape[-1] == value.shape[-1]:
            out = torch.empty_like(query)
        else:
            out = query.new_empty(*query.shape[:-1], value.shape[-1])
        rows = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, rows)
        ctx.mark_non_differentiable(rows)
        return out, rows

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        query, key, value, _, rows = ctx.saved_tensors
        sums = torch.empty_like(rows)
        gradients = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        del sums
        return gradients


def _run_kernel(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Any:
    """In place of torch's higher-order operator: output, logarithms of the rows' sums, rows' maxima."""
    out, rows = _Kernel.apply(query, key, value)
    return out, rows, rows
