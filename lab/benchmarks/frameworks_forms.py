"""What the models of `bench frameworks` are fed, whatever the framework: images last in channels, or tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMS", "Example", "Form"]

FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    **dict.fromkeys(("vgg16", "resnet50", "mobilenet-v2"), ((224, 224, 3), ())),
    "inception-v3": ((299, 299, 3), ()),
    "lstm-lm": ((64,), (64,)),
    "transformer": ((128,), (128,)),
    "bert-base": ((64,), (64,)),
    "unet": ((128, 128, 3), (128, 128)),
    "mlp": ((784,), ()),
    "lenet": ((32, 32, 3), ()),
    "gru-classifier": ((64, 64), ()),
    "separable-cnn": ((96, 96, 3), ()),
}
"""One sample and its label."""


@dataclass(frozen=True)
class Form:
    """Of one sample, or of its label."""

    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Example:
    """A model of the further ones, with what it is fed."""

    build: Callable[[], Any]
    x: Form | tuple[Form, ...]
    y: Form
    batches: tuple[int, ...]

    def fed(self, make: Callable[[tuple[int, ...], str], Any], batch_size: int) -> tuple[Any, Any]:
        """(x, y), each made by `make(shape, dtype)`."""

        def made(form: Form) -> Any:
            return make((batch_size, *form.shape), form.dtype)

        return (tuple(map(made, self.x)) if isinstance(self.x, tuple) else made(self.x)), made(self.y)
