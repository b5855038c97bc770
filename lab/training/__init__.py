"""How the learned estimators that ship are trained from measured runs, and how they are judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomcast.lazy import lazy_names

if TYPE_CHECKING:
    from .training import render, train

__all__ = ["render", "train"]

__getattr__ = lazy_names(
    __name__,
    {
        ".training": ("render", "train"),
    },
)
