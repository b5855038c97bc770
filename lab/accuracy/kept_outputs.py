"""Jobs of loops that keep a step's `outputs` until the next step has its own. No framework is loaded before capture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .old_transformers import keep_cache_as_it_was, settings_of_spring_2025
from .public_models import PublicModel

__all__ = ["ImageClassifierJob", "LanguageModelJob"]


@dataclass(frozen=True)
class ImageClassifierJob:
    """A model of torchvision with cross entropy."""

    name: str
    input_shape: tuple[int, int, int]
    classes: int

    libraries = ("torchvision",)

    def model(self) -> Any:
        import torchvision

        return torchvision.models.get_model(self.name, weights=None, num_classes=self.classes)

    def batch(self, batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, *self.input_shape), torch.randint(self.classes, (batch_size,))

    def loss(self, model: Any, batch: Any) -> Any:
        from torch.nn import functional

        model.outputs = model(batch[0])
        return functional.cross_entropy(model.outputs, batch[1])


@dataclass(frozen=True)
class LanguageModelJob:
    """A language model of transformers, made from its configuration, in fp32."""

    public: PublicModel
    length: int
    of_spring_2025: bool = False
    """With the transformers of that time (4.51)."""

    libraries = ("transformers",)

    def model(self) -> Any:
        import transformers

        settings = dict(self.public.settings)
        if self.of_spring_2025:
            keep_cache_as_it_was()
            settings |= settings_of_spring_2025(self.public.config_class)
        configuration = getattr(transformers, self.public.config_class)(**settings)
        return getattr(transformers, self.public.model_class)._from_config(configuration)

    def batch(self, batch_size: int) -> Any:
        import torch

        tokens = torch.randint(1000, (batch_size, self.length))
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens.clone()}

    def loss(self, model: Any, batch: Any) -> Any:
        model.outputs = model(**batch)
        return model.outputs.loss
