"""`oomcast.virtual_gpu`: the virtual GPU for users' own scripts, with memory counters that tell the truth."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .devices import Gpu, Stack, context_bytes, find_gpu, stack_of
from .simulate import DeviceFacts, LiveMemory, WorkspaceTable

if TYPE_CHECKING:
    from .capture.torch.machine import VirtualGpu

__all__ = ["memory_counters", "virtual_gpu"]


@contextmanager
def virtual_gpu(device: str, environment: str | None = None) -> Iterator[VirtualGpu]:
    """Run torch code written for CUDA as it is, on a GPU that is not there.

    >>> with oomcast.virtual_gpu("a100-40gb") as gpu:
    ...     model = torch.nn.Linear(1000, 1000).cuda()
    ...     model(torch.randn(64, 1000, device="cuda")).sum().backward()
    ...     torch.cuda.max_memory_allocated()

    Tensors say that they are on `cuda:0` and hold no data. `gpu.estimate()` is the answer as `oomcast.estimate` gives
    it, for what ran so far; `gpu.trace()` is the record of all allocations. `environment` names the software whose
    choices are followed, like torch-2.8-cu128 or torch-2.6; without it, that of the installed torch. Raises UnknownName
    for a device or an environment that is not in the catalogue.
    """
    from .capture.torch.machine import virtual_gpu as capture_context

    gpu, stack = find_gpu(device), stack_of(environment, "torch")
    with capture_context(gpu, stack, counters=memory_counters(gpu, stack)) as virtual:
        yield virtual


def memory_counters(gpu: Gpu, stack: Stack) -> Callable[[VirtualGpu], Any]:
    """What answers the memory questions of `torch.cuda` on a virtual GPU."""
    return lambda virtual: _Counters(virtual, gpu, stack)


class _Counters:
    """The memory counters of `torch.cuda`: what was recorded so far, through the simulated allocator."""

    def __init__(self, virtual: VirtualGpu, gpu: Gpu, stack: Stack) -> None:
        self._gpu = gpu
        self._context = context_bytes(gpu, stack)
        rules = WorkspaceTable(DeviceFacts(gpu.compute_capability, stack.version))
        self._memory = LiveMemory(virtual.ledger, rules)

    def allocated(self) -> int:
        return self._memory.now().allocated

    def reserved(self) -> int:
        return self._memory.now().reserved

    def peak_allocated(self) -> int:
        return self._memory.now().peak_allocated

    def peak_reserved(self) -> int:
        return self._memory.now().peak_reserved

    def reset_peaks(self) -> None:
        self._memory.reset_peaks()

    def segments(self) -> list[dict[str, Any]]:
        """As `torch.cuda.memory_snapshot` tells them."""
        return [
            {
                "device": 0,
                "address": segment.address,
                "total_size": segment.size,
                "allocated_size": sum(block.size for block in segment.blocks if block.live),
                "active_size": sum(block.size for block in segment.blocks if block.live),
                "stream": segment.stream,
                "segment_type": "small" if segment.is_small else "large",
                "is_expandable": segment.is_expandable,
                "blocks": [
                    {
                        "address": block.address,
                        "size": block.size,
                        "requested_size": block.requested,
                        "state": "active_allocated" if block.live else "inactive",
                        "frames": [],
                    }
                    for block in segment.blocks
                ],
            }
            for segment in self._memory.segments()
        ]

    def free_on_device(self) -> int:
        return max(self._gpu.usable_memory - self._context - self.reserved(), 0)
