"""What a server does before its first request: torch and the libraries on it are made ready for every fork."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

from ...spec import Spec
from .jobs.vision import import_library
from .run import capture_here

__all__ = ["load_library", "warm_up"]

_LIBRARIES = {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}


def load_library(spec: Spec) -> None:
    """The library that the job's model comes from."""
    with contextlib.suppress(Exception):
        library = _LIBRARIES.get(spec.workload.job.kind.value)
        if library is not None:
            import_library(library)


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
