"""Image models of timm and torchvision as the measured scripts trained them. No framework is loaded before capture."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

__all__ = ["TimmJob", "TorchvisionJob"]


@dataclass(frozen=True)
class TimmJob:
    """A model of timm with cross entropy, on images of its own size or a given one."""

    name: str
    input_shape: tuple[int, ...] | None = None
    classes: int | None = None
    old: bool = False
    """As timm 0.6 on torch 1.12 ran it: attention written out, SGD with nesterov momentum parameter by parameter."""
    autocast: bool = False
    """fp16 autocast without a GradScaler, as timm's benchmark does it."""
    weight_decay: float = 0.0
    """Above 0, SGD holds a second copy of all gradients while it steps."""

    libraries = ("timm",)

    def model(self) -> Any:
        import timm
        from timm.layers.config import set_fused_attn

        if self.old:
            set_fused_attn(False)
        options: dict[str, Any] = {} if self.classes is None else {"num_classes": self.classes}
        if self.input_shape is not None and self.input_shape != self._own_shape():
            with contextlib.suppress(TypeError):  # many models take images of any size, and no option for it
                return timm.create_model(self.name, img_size=self.input_shape[1:], **options)
        return timm.create_model(self.name, **options)

    def batch(self, batch_size: int) -> Any:
        import torch

        shape = self.input_shape or self._own_shape()
        return torch.randn(batch_size, *shape), torch.randint(10, (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        import torch

        with torch.autocast("cuda", dtype=torch.float16, enabled=self.autocast):
            output = model(batch[0])
            scores = output[0] if isinstance(output, (tuple, list)) else output
            return torch.nn.functional.cross_entropy(scores, batch[1])

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        foreach = False if self.old else None
        return optim.SGD(
            parameters, lr=0.01, momentum=0.9, nesterov=self.old, weight_decay=self.weight_decay, foreach=foreach
        )

    def _own_shape(self) -> tuple[int, ...]:
        import timm

        configuration = timm.get_pretrained_cfg(self.name)
        return tuple(configuration.input_size) if configuration else (3, 224, 224)


@dataclass(frozen=True)
class TorchvisionJob:
    """A model of torchvision with cross entropy; `head` replaces the last layer by one for so many classes."""

    name: str
    head: int | None = None
    adam_of_2023: bool = False
    """Adam as torch had it until July 2023, instead of the workload's optimizer."""

    libraries = ("torchvision",)
    sources = ("_old_torch.py",)

    def model(self) -> Any:
        import torch
        import torchvision

        model = torchvision.models.get_model(self.name, weights=None)
        if self.head is not None:
            model.heads.head = torch.nn.Linear(model.hidden_dim, self.head)
        return model

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, 3, 224, 224), torch.randint(10, (batch_size,))

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        from ._old_torch import AdamOf2023

        return AdamOf2023(parameters) if self.adam_of_2023 else optim.Adam(parameters)
