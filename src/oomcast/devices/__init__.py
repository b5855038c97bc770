"""GPUs and software stacks as data: what a card holds, what a process takes from it before the first tensor."""

from __future__ import annotations

from .attention import AttentionTraits, attention_traits
from .gpus import IDLE_RESERVE, Gpu, MemorySource, all_gpus, find_gpu, other_gpus, other_variants
from .nccl import nccl_bytes
from .stacks import (
    ContextFigure,
    ContextRule,
    Stack,
    all_stacks,
    context_bytes,
    context_figure,
    default_stack,
    find_stack,
    largest_context,
    stack_of,
)

__all__ = [
    "IDLE_RESERVE",
    "AttentionTraits",
    "ContextFigure",
    "ContextRule",
    "Gpu",
    "MemorySource",
    "Stack",
    "all_gpus",
    "all_stacks",
    "attention_traits",
    "context_bytes",
    "context_figure",
    "default_stack",
    "find_gpu",
    "find_stack",
    "largest_context",
    "nccl_bytes",
    "other_gpus",
    "other_variants",
    "stack_of",
]
