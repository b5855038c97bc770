"""timm's train.py with the ResNet-18 of its row, as a job: its own loader, which prefetches, and its own loss."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import torch

from oomcast.capture.torch.vision_operators import prepare_torchvision


def _library(name: str) -> Any:
    prepare_torchvision()  # whose operators may be built for another torch
    return importlib.import_module(name)


def model() -> Any:
    return _library("timm").create_model("resnet18", num_classes=6)


def batch(batch_size: int) -> Any:
    return [torch.randn(batch_size, 3, 224, 224), torch.zeros(batch_size, dtype=torch.int64)]


def batches(batch_size: int) -> Iterator[Any]:
    bytes_of_images = torch.zeros(batch_size, 3, 224, 224, dtype=torch.uint8)
    loader = [(bytes_of_images, torch.zeros(batch_size, dtype=torch.int64))] * 9
    yield from _library("timm.data.loader").PrefetchLoader(loader, device=torch.device("cuda"))


def loss(model: Any, batch: Any) -> torch.Tensor:
    loss: torch.Tensor = _library("timm.loss").LabelSmoothingCrossEntropy(0.1)(model(batch[0]), batch[1])
    return loss


def optimizer(params: Any) -> Any:
    return torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=2e-5)
