"""Options of a training loop that only torch's capture follows."""

from __future__ import annotations

from ..errors import BadInput
from ..spec import Workload

__all__ = ["refuse_options_of_torch"]

_OPTIONS = ("offload_activations", "optimizer_in_backward", "master_weights", "empty_cache_steps")


def refuse_options_of_torch(workload: Workload, framework: str) -> None:
    """Rather than leaving them out in silence."""
    for name in _OPTIONS:
        if getattr(workload, name):
            raise BadInput(f"--{name.replace('_', '-')} is followed for torch alone, not for {framework}.")
