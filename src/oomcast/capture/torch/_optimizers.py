"""Optimizers by name. What torch would choose on CUDA (foreach, for most) it chooses here, unless the name fixes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import optim

__all__ = ["make_optimizer"]

_KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "sgd": (optim.SGD, {"lr": 0.01}),
    "sgd-momentum": (optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "adam": (optim.Adam, {"lr": 1e-3}),
    "adamw": (optim.AdamW, {"lr": 1e-3}),
    "rmsprop": (optim.RMSprop, {"lr": 1e-3}),
    "adagrad": (optim.Adagrad, {"lr": 1e-3}),
    "adafactor": (getattr(optim, "Adafactor", None), {"lr": 1e-3}),
}
_VARIANTS: dict[str, dict[str, Any]] = {
    "foreach": {"foreach": True},
    "forloop": {"foreach": False},
    "fused": {"fused": True},
}


def make_optimizer(name: str, parameters: Iterable[torch.nn.Parameter]) -> optim.Optimizer:
    """`adam`, `adam-fused`, `sgd-momentum-forloop`, … over the parameters that are trained."""
    base, _, variant = name.rpartition("-")
    if variant not in _VARIANTS:
        base, variant = name, ""
    kind, options = _KINDS[base]
    return kind(parameters, **options, **_VARIANTS.get(variant, {}))
