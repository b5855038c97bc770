"""What the models of `bench frameworks` are fed, whatever the framework: images last in channels, or tokens."""

from __future__ import annotations

__all__ = ["FORMS"]

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
