"""What makes one job's figure less sure than another's.

Two things that a simulation shows drive how far it is off. What the allocator keeps beside the tensors hangs on which
free block each of them found, and with it on every size and every lifetime before. What a convolution takes as
workspace hangs on which kernel cuDNN chose. A network of matrix products with little of either is known almost to the
byte; one of many odd convolutions is not. How much each counts was learnt from measured runs (`interval.json`). A
third, the CUDA context of a card on which it was not measured, has the catalogue's own range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Doubt", "DoubtWeights"]


@dataclass(frozen=True)
class Doubt:
    """What a job has of it, in bytes."""

    cache: int
    """What the allocator keeps beside the tensors: peak of the reserved bytes less that of the allocated ones."""
    workspace: int
    """The most that one convolution takes beside its tensors."""
    context: int = 0
    """By how much the CUDA context may be above the catalogue's figure, where that was not measured on such a card."""


@dataclass(frozen=True)
class DoubtWeights:
    """How far a figure is off, as a share of it: `base`, and these parts of the cache's and the workspace's shares."""

    base: float
    cache: float
    workspace: float
    middle: float
    """The same for the job in the middle of the measured runs."""

    def __post_init__(self) -> None:
        if not (self.base > 0 and self.cache >= 0 and self.workspace >= 0 and self.middle > 0):
            raise ValueError("the weights of a doubt must not be negative, its base and its middle not 0")

    def share(self, doubt: Doubt, total: int) -> float:
        """How far a total may be off, as a share of it; only the proportion between two jobs has a meaning."""
        return self.base + (self.cache * doubt.cache + self.workspace * doubt.workspace) / max(total, 1)

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> DoubtWeights:
        return cls(*(float(content[name]) for name in ("base", "cache", "workspace", "middle")))
