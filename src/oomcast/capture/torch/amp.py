"""`torch.autocast("cuda")` on any build: its state is kept under the name of the stand-in's device type, `cpu`."""

from __future__ import annotations

from typing import Any

import torch

from ...trace import TraceBuilder
from .patches import Patches

__all__ = ["install_amp"]


def _named(device_type: Any) -> Any:
    return "cpu" if device_type == "cuda" else device_type


def install_amp(patches: Patches, ledger: TraceBuilder) -> None:
    """Redirect the autocast state of `cuda`; its default type is fp16, as on a GPU."""
    is_enabled, get_dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    set_enabled, set_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype

    def set_autocast_enabled(*args: Any) -> None:
        if len(args) == 1:
            set_enabled("cpu", args[0])
        else:
            set_enabled(_named(args[0]), args[1])

    redirected: dict[str, Any] = {
        "is_autocast_enabled": lambda device_type="cuda": is_enabled(_named(device_type)),
        "get_autocast_dtype": lambda device_type: get_dtype(_named(device_type)),
        "set_autocast_enabled": set_autocast_enabled,
        "set_autocast_dtype": lambda device_type, dtype: set_dtype(_named(device_type), dtype),
        "get_autocast_gpu_dtype": lambda: get_dtype("cpu"),
        "set_autocast_gpu_dtype": lambda dtype: set_dtype("cpu", dtype),
    }
    clear_cache = torch.clear_autocast_cache

    def clear_autocast_cache() -> None:
        # The cache is a hash table of addresses: left alone, the same job would free in another order each time.
        with ledger.freeing_together():
            clear_cache()

    redirected["clear_autocast_cache"] = clear_autocast_cache
    for name, function in redirected.items():
        patches.set(torch, name, function)
