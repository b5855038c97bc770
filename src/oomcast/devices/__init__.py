"""GPUs and software stacks as data: what a card holds, what a process takes from it before the first tensor."""

from ._catalogue import IDLE_RESERVE, Gpu, MemorySource, all_gpus, find_gpu, other_variants
from ._context import (
    ContextFigure,
    ContextRule,
    Stack,
    all_stacks,
    context_bytes,
    context_figure,
    default_stack,
    find_stack,
)

__all__ = [
    "IDLE_RESERVE",
    "ContextFigure",
    "ContextRule",
    "Gpu",
    "MemorySource",
    "Stack",
    "all_gpus",
    "all_stacks",
    "context_bytes",
    "context_figure",
    "default_stack",
    "find_gpu",
    "find_stack",
    "other_variants",
]
