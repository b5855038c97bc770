"""cuDNN's convolution workspaces: asked of cuDNN itself without a GPU, or read from a table distilled from it."""

from ._ask import CudnnUnavailable
from ._benchmark import has_batch_norm, has_convolutions, with_benchmark
from ._rules import ConvolutionRules, Source, convolution_rules

__all__ = [
    "ConvolutionRules",
    "CudnnUnavailable",
    "Source",
    "convolution_rules",
    "has_batch_norm",
    "has_convolutions",
    "with_benchmark",
]
