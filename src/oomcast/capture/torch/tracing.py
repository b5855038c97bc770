"""`torch.jit.trace` on the virtual GPU: the model runs once, as tracing does, and goes on as plain code.

The tracer turns every size into a tensor and reads it, which tensors without values cannot answer. It holds none of
what it sees (torch's `TracingState` maps weak references), so the memory of a trace is that of one forward, with
gradients if they are on. TensorBoard's `add_graph` traces a model for its picture, which is empty here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .patches import Patches

__all__ = ["install_tracing"]


class _Traced:
    """What traced modules have beyond plain ones."""

    graph = property(lambda module: torch._C.Graph())
    code = ""

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Nothing of it was compiled."""


def install_tracing(patches: Patches, note: Callable[[str], None]) -> None:
    def trace(func: Any, example_inputs: Any = None, *_: Any, **options: Any) -> Any:
        note("torch.jit.trace runs the model once, and what was traced is taken as plain code")
        if example_inputs is None and "example_kwarg_inputs" in options:
            func(**options["example_kwarg_inputs"])
        else:
            one = isinstance(example_inputs, (torch.Tensor, dict))
            func(*([example_inputs] if one else example_inputs))
        return _as_traced(func) if isinstance(func, nn.Module) else func

    patches.set(torch.jit, "trace", trace)


def _as_traced(module: nn.Module) -> nn.Module:
    """Another module with the same parameters, as a traced one is."""
    kind = type(module)
    traced = copy.copy(module)
    traced.__class__ = type(kind.__name__, (_Traced, kind), {"__module__": kind.__module__})
    return traced
