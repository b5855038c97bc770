"""A loadable libcuda.so.1 for cuDNN's libraries, where no driver is installed."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

__all__ = ["MACHINES", "SOURCE", "load_driver", "stub_name"]

SOURCE = Path(__file__).parent / "stub" / "libcuda.c"
MACHINES = ("x86_64", "aarch64")


def stub_name(machine: str) -> str:
    return f"libcuda-{machine}.so"


def load_driver() -> str:
    """Load the real libcuda, or ours if there is none; says which ("driver" or "stub"). Raises OSError.

    What is loaded under the name libcuda.so.1 is what every later look-up of that name in this process finds, so this
    belongs into a process of its own.
    """
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(str(SOURCE.parent / stub_name(platform.machine())), mode=ctypes.RTLD_GLOBAL)
        return "stub"
    return "driver"
