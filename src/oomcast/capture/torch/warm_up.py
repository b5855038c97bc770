"""What a server does before its first request: torch and the libraries on it are made ready for every fork."""

from __future__ import annotations

import contextlib
import importlib
import sys

import torch
from torch import nn

from ...devices import find_gpu, stack_of
from ...spec import Spec
from ..stderr import silenced
from .jobs.vision import import_library
from .machine import virtual_gpu
from .run import capture_here

__all__ = ["load_library", "warm_up"]

_COMES_WITH = {"transformers": f"{__package__}.jobs.remote_code"}
"""Library → a module of ours that loads those parts of it which all its models need."""


def load_library(spec: Spec) -> None:
    """The libraries that the job's model comes from."""
    for name in spec.workload.libraries:
        if name in sys.modules:
            continue
        with contextlib.suppress(Exception), silenced():  # whoever uses it again is told again
            if name == "peft":  # bitsandbytes comes with it, which looks for a GPU when it is loaded
                with virtual_gpu(find_gpu(spec.place.machines.gpu), stack_of(spec.place.environment, "torch")):
                    importlib.import_module(name)
            else:
                import_library(name)
            if name in _COMES_WITH:
                importlib.import_module(_COMES_WITH[name])


def warm_up() -> None:
    """Capture something small here: what torch loads and prepares at first use, every fork then has already."""
    spec = Spec.read(_SmallJob, device="a100-40gb", batch_size=2, steps=1, precision="amp-fp16")
    with contextlib.suppress(Exception):
        capture_here(spec)


class _SmallJob:
    """The operators that most models have."""

    @staticmethod
    def model() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )

    @staticmethod
    def batch(batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch_size, 3, 8, 8), torch.zeros(batch_size, dtype=torch.long)
