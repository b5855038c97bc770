"""GPUs and software stacks as data: what a card holds, what a process takes from it before the first tensor."""

from __future__ import annotations

from .attention import AttentionTraits, attention_traits
from .gpus import IDLE_RESERVE, Gpu, MemorySource, all_gpus, find_gpu, other_gpus, other_variants
from .nccl import NCCL_VARIABLES, Exchange, NcclFigure, RankGroup, nccl_figure, nccl_in_words, nccl_version
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
    "NCCL_VARIABLES",
    "AttentionTraits",
    "ContextFigure",
    "ContextRule",
    "Exchange",
    "Gpu",
    "MemorySource",
    "NcclFigure",
    "RankGroup",
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
    "nccl_figure",
    "nccl_in_words",
    "nccl_version",
    "other_gpus",
    "other_variants",
    "stack_of",
]
