"""Expert parallelism by the code of transformers: each rank of a group has its share of every layer's experts.

The plan is the one that the model brings (`ep_plan`). Tokens go to the ranks that own their experts and come back by
all-to-all, whose sizes depend on the router's choices. These are taken as even, as routers are trained to make them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils._python_dispatch import _disable_current_modes

from ....errors import BadInput
from ..values import Values

__all__ = ["share_experts"]

_DISPATCHED = "ep_dispatch_experts"
"""transformers' name of the style whose tokens travel; the others run every expert's tokens on every rank."""


def share_experts(
    model: nn.Module, mesh: DeviceMesh, alone: DeviceMesh, know: Callable[[Any, torch.Tensor], None]
) -> list[nn.Module]:
    """Give this rank its experts of each layer; the modules that hold them. `alone` is a mesh of one: no ranks share a
    batch. `know` tells the values of a tensor."""
    size, plan = mesh.size(), getattr(model, "ep_plan", None)
    if not isinstance(plan, Mapping) or _DISPATCHED not in plan.values():
        raise BadInput(
            f"ep={size} follows the plan for experts that models of transformers bring, and this model brings none; "
            "run a script that spreads its experts: oomcast run -- …"
        )
    try:
        library = importlib.import_module("transformers.distributed.expert_parallel")
        library.apply_expert_parallelism(model, mesh, alone, dict(plan))
    except (ImportError, AttributeError):
        raise BadInput(f"ep={size} needs a transformers that shares experts; install a newer one.") from None
    except ValueError as error:
        raise BadInput(f"ep={size} does not divide the experts: {str(error).rstrip('.')}.") from None
    shared = [module for module in model.modules() if module.__dict__.get("_is_expert_parallel")]
    for module in shared:
        module.forward = _evenly(module.forward, int(module.num_experts) * size, know)  # type: ignore[arg-type]
    return shared


def _evenly(forward: Callable[..., Any], experts: int, know: Callable[[Any, torch.Tensor], None]) -> Callable[..., Any]:
    def with_even_choices(hidden_states: torch.Tensor, choices: torch.Tensor, weights: torch.Tensor) -> Any:
        if not Values.small_enough(choices.numel(), choices.dtype):
            raise BadInput(
                f"ep=N: the {choices.numel():,} choices of experts of a layer are too many to be followed; give a "
                "smaller batch, with --accumulation."
            )
        with _disable_current_modes():
            even = (torch.arange(choices.numel()) % experts).to(choices.dtype).reshape(choices.shape)
        know(choices, even)
        return forward(hidden_states, choices, weights)

    return with_even_choices
