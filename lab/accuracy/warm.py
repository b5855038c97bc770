"""What captures need, loaded once: job objects are captured in forks of this process."""

from __future__ import annotations

import functools

import torch

from oomcast.capture.torch.jobs.vision import import_library
from oomcast.virtual import virtual_gpu

from .cases import Case

__all__ = ["warm_up"]


def warm_up(case: Case) -> None:
    """Load what this capture needs here, before the fork: each fork would load it again."""
    for library in getattr(case.workload.job.target, "libraries", ()):
        import_library(library)
    _tiny_step()


@functools.cache
def _tiny_step() -> None:
    """torch loads half of itself when the first fake tensor is trained."""
    torch.set_num_threads(1)
    with virtual_gpu("a100-40gb"):
        model = torch.nn.Linear(4, 4).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.ones(2, 4, device="cuda")).sum().backward()
        optimizer.step()
