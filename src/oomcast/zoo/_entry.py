"""What the zoo knows of a model without building it, and what a loaded model offers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Job", "Task", "ZooModel"]

Task = Literal[
    "image-classification",
    "causal-lm",
    "masked-lm",
    "text-classification",
    "segmentation",
    "volume-segmentation",
    "tabular",
]


class Job(Protocol):
    """The functions of a job file. There is no `optimizer`: the default applies."""

    def model(self) -> nn.Module:
        """A new model: fp32, in training mode, on the default device."""

    def batch(
        self, batch_size: int, input_shape: tuple[int, ...] | None = None, seq_len: int | None = None
    ) -> tuple[Tensor, Tensor] | dict[str, Tensor]:
        """One batch on the CPU; `BadInput` if the model cannot train on what is asked for."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """The scalar to call `backward()` on, for a batch that is on the model's device."""


@dataclass(frozen=True)
class ZooModel:
    """A named model. `default_input` is the shape of one sample without the batch, or a number of tokens for text.

    `module` and `builder` name the function that makes the job; it is imported only by `load`.
    """

    name: str
    summary: str
    task: Task
    default_input: tuple[int, ...] | int
    default_batch_size: int
    citation: str
    module: str
    builder: str

    def load(self) -> Job:
        """The job of this model. Imports torch; builds nothing yet."""
        build: Callable[[ZooModel], Job] = getattr(importlib.import_module(self.module), self.builder)
        return build(self)
