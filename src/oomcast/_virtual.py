"""`oomcast.virtual_gpu`: the virtual GPU for users' own scripts, with memory counters that tell the truth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .devices import Gpu, context_bytes, default_stack, find_gpu
from .simulate import DeviceFacts, Timeline, WorkspaceTable, simulate

if TYPE_CHECKING:
    from .capture.torch._virtual_gpu import VirtualGpu

__all__ = ["virtual_gpu"]


@contextmanager
def virtual_gpu(device: str) -> Iterator[VirtualGpu]:
    """Run torch code written for CUDA as it is, on a GPU that is not there.

    >>> with oomcast.virtual_gpu("a100-40gb") as gpu:
    ...     model = torch.nn.Linear(1000, 1000).cuda()
    ...     model(torch.randn(64, 1000, device="cuda")).sum().backward()
    ...     torch.cuda.max_memory_allocated()

    Tensors say that they are on `cuda:0` and hold no data. `gpu.trace()` is the record of all they took.
    """
    from .capture.torch._virtual_gpu import virtual_gpu as capture_context

    found = find_gpu(device)
    with capture_context(found, lambda virtual: _Counters(virtual, found)) as virtual:
        yield virtual


class _Counters:
    """The memory counters of `torch.cuda`: what was recorded so far, through the simulated allocator."""

    def __init__(self, virtual: VirtualGpu, gpu: Gpu) -> None:
        self._virtual = virtual
        self._gpu = gpu
        self._rules = WorkspaceTable(DeviceFacts(compute_capability=gpu.compute_capability))
        self._since = 0
        self._seen = -1
        self._timeline: Timeline | None = None

    def _now(self) -> Timeline:
        count = self._virtual.ledger.event_count
        if self._timeline is None or count != self._seen:
            self._seen = count
            self._timeline = simulate(self._virtual.trace(), workspace=self._rules, record_curve=True)
        return self._timeline

    def allocated(self) -> int:
        return self._now().end_allocated

    def reserved(self) -> int:
        return self._now().end_reserved

    def peak_allocated(self) -> int:
        timeline = self._now()
        curve = timeline.allocated_curve
        assert curve is not None
        return max(curve[self._since :], default=timeline.end_allocated)

    def peak_reserved(self) -> int:
        timeline = self._now()
        curve = timeline.reserved_curve
        assert curve is not None
        return max(curve[self._since :], default=timeline.end_reserved)

    def reset_peaks(self) -> None:
        """From here on: the last event's own height counts no more, what is held now does."""
        self._since = self._virtual.ledger.event_count

    def free_on_device(self) -> int:
        context = context_bytes(self._gpu, default_stack(None))
        return max(self._gpu.usable_memory - context - self.reserved(), 0)
