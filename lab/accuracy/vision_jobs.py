"""Image models of timm and torchvision as the measured scripts trained them. No framework is loaded before capture."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Literal

from .library_names import timm_modules
from .old_timm import IMAGES_OF_2024, OPTIONS_OF_2024, as_in_2024, prefetched

__all__ = ["TimmJob", "TorchvisionJob", "UnetJob"]


@dataclass(frozen=True)
class TimmJob:
    """A model of timm with cross entropy, on images of its own size or a given one."""

    name: str
    input_shape: tuple[int, ...] | None = None
    classes: int | None = None
    year: int | None = None
    """2024: models as timm 1.0.9 built them. 2022: as timm 0.6 on torch 1.12 ran them: attention written out, SGD with
    nesterov momentum parameter by parameter."""
    prefetching: bool = False
    """Whether the loader of timm's training script brings the batches."""
    autocast: bool = False
    """fp16 autocast without a GradScaler, as timm's benchmark does it."""
    weight_decay: float = 0.0
    """Above 0, SGD holds a second copy of all gradients while it steps."""
    adamw_off_the_gpu: Literal["", "states", "gradients"] = ""
    """torchao's `CPUOffloadOptimizer` over AdamW: what of it is on the host."""

    libraries = ("timm",)

    def model(self) -> Any:
        from timm.layers.config import set_fused_attn

        if self.year == 2022:
            set_fused_attn(False)
        return self._built() if self.year is None else as_in_2024(self._built())

    def _built(self) -> Any:
        options: dict[str, Any] = {} if self.classes is None else {"num_classes": self.classes}
        of_year = {} if self.year is None else OPTIONS_OF_2024.get(timm_modules()[self.name], {})
        with contextlib.suppress(TypeError):  # a timm of that year has no option for it
            return self._created(options | of_year)
        return self._created(options)

    def _created(self, options: dict[str, Any]) -> Any:
        import timm

        if self._shape() != self._own_shape():
            with contextlib.suppress(TypeError):  # many models take images of any size, and no option for it
                return timm.create_model(self.name, img_size=self._shape()[1:], **options)
        return timm.create_model(self.name, **options)

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, *self._shape()), torch.randint(10, (batch_size,))

    def batches(self, batch_size: int) -> Iterator[Any]:
        import torch

        if not self.prefetching:
            return (self.batch(batch_size) for _ in count())
        images, classes = self.batch(batch_size)
        return prefetched(repeat((images.to(torch.uint8), classes)))

    def loss(self, model: Any, batch: Any) -> Any:
        import torch

        with torch.autocast("cuda", dtype=torch.float16, enabled=self.autocast):
            output = model(batch[0])
            scores = output[0] if isinstance(output, (tuple, list)) else output
            return torch.nn.functional.cross_entropy(scores, batch[1])

    def optimizer(self, parameters: Any) -> Any:
        from torch import optim

        if self.adamw_off_the_gpu:
            offloaded = importlib.import_module("torchao.optim").CPUOffloadOptimizer
            return offloaded(
                parameters, optim.AdamW, offload_gradients=self.adamw_off_the_gpu == "gradients", fused=True
            )
        old = self.year == 2022
        foreach = False if old else None
        return optim.SGD(
            parameters, lr=0.01, momentum=0.9, nesterov=old, weight_decay=self.weight_decay, foreach=foreach
        )

    def _shape(self) -> tuple[int, ...]:
        of_2024 = None if self.year is None else IMAGES_OF_2024.get(self.name)
        return self.input_shape or of_2024 or self._own_shape()

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
        from oomcast.capture.torch.optimizers import make_optimizer

        return make_optimizer("adam", parameters, (2, 0) if self.adam_of_2023 else None)


@dataclass(frozen=True)
class UnetJob:
    """The U-Net of segmentation_models_pytorch on a ResNet-34, with the Dice loss over the classes of each pixel."""

    classes: int
    side: int

    libraries = ("segmentation_models_pytorch",)

    def model(self) -> Any:
        import segmentation_models_pytorch

        return segmentation_models_pytorch.Unet("resnet34", encoder_weights=None, classes=self.classes)

    def batch(self, batch_size: int) -> Any:
        import torch

        image = (batch_size, 3, self.side, self.side)
        return torch.randn(image), torch.randint(self.classes, (batch_size, self.side, self.side))

    def loss(self, model: Any, batch: Any) -> Any:
        from segmentation_models_pytorch.losses import DiceLoss

        return DiceLoss("multiclass")(model(batch[0]), batch[1])
