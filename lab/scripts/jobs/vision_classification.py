"""torchvision's references/classification/train.py with the ResNet-18 of its row, as a job: six classes."""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.nn import functional as F

from oomcast.capture.torch.vision_operators import prepare_torchvision


def model() -> Any:
    prepare_torchvision()  # whose operators may be built for another torch
    return importlib.import_module("torchvision.models").resnet18(num_classes=6)


def batch(batch_size: int) -> Any:
    return [torch.randn(batch_size, 3, 224, 224), torch.zeros(batch_size, dtype=torch.int64)]


def loss(model: Any, batch: Any) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def optimizer(params: Any) -> Any:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-4)
