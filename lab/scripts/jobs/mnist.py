"""The mnist example of pytorch/examples, as a job."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.nn import functional as F

from oomcast.capture.torch.vision_operators import prepare_torchvision


def model() -> Any:
    prepare_torchvision()  # whose operators may be built for another torch
    return importlib.import_module("main").Net()


def batch(batch_size: int) -> Any:
    return [torch.randn(batch_size, 1, 28, 28), torch.randint(0, 10, (batch_size,))]


def loss(model: Any, batch: Any) -> torch.Tensor:
    return F.nll_loss(model(batch[0]), batch[1])


def optimizer(params: Any) -> Any:
    return torch.optim.Adadelta(params)
