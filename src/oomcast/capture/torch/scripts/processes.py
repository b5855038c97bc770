"""What a script starts besides itself: a process for each GPU, and compilers.

`torch.multiprocessing.spawn` starts a process for each GPU that runs one function; here that function runs in the
process at hand, for the rank that is looked at. Extensions in C++ or CUDA are compiled for the machine at hand and read
the memory of tensors, of which the virtual GPU's have none: they are refused in a sentence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from ....errors import BadInput
from ..machine import VirtualGpu
from ..patches import Patches

__all__ = ["install_processes"]


class _Done:
    """What `spawn(..., join=False)` returns: its processes have ended."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def install_processes(patches: Patches, virtual: VirtualGpu, rank: int, world_size: int) -> None:
    device = virtual.gpu.name

    def no_extension(name: str, *args: Any, **kwargs: Any) -> Any:
        """Told even if the script catches it and goes on with other code than it would have on the GPU."""
        line = virtual.scope.user_line()
        where = f" at {line}" if line else ""
        sentence = (
            f"the script compiles the extension {name!r}{where}: what its C++ or CUDA code allocates cannot be followed"
        )
        virtual.ledger.assume(sentence)
        raise BadInput(f"{sentence}; run the script with its plain PyTorch code, if it has any.")

    def spawn(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, **_: Any) -> _Done | None:
        if nprocs not in (1, world_size):
            raise BadInput(
                f"the script starts {nprocs} processes, one for each GPU, but the device has {world_size}; name "
                f"--device {nprocs}x{device}."
            )
        fn(rank if nprocs > 1 else 0, *args)
        return None if join else _Done()

    patches.set(torch.multiprocessing, "spawn", spawn)
    patches.set(torch.multiprocessing, "start_processes", spawn)
    extensions = importlib.import_module("torch.utils.cpp_extension")
    for name in ("load", "load_inline"):
        patches.set(extensions, name, no_extension)
