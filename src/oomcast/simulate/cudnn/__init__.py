"""cuDNN's convolution workspaces: asked of cuDNN itself without a GPU, or read from a table distilled from it."""

from __future__ import annotations

from .ask import CudnnUnavailable
from .benchmark import has_batch_norm, has_convolutions, with_benchmark
from .rules import ConvolutionRules, Source, convolution_rules

__all__ = [
    "ConvolutionRules",
    "CudnnUnavailable",
    "Source",
    "convolution_rules",
    "has_batch_norm",
    "has_convolutions",
    "with_benchmark",
]
