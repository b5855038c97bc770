"""Activation checkpointing for any model: its own switch where it has one, else each of its repeated blocks."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from oomcast.errors import BadInput

__all__ = ["enable_checkpointing"]


def enable_checkpointing(model: nn.Module) -> str:
    """Turn it on and say in a sentence how."""
    own_switch: Any = getattr(model, "gradient_checkpointing_enable", None)
    if own_switch is not None:
        own_switch(gradient_checkpointing_kwargs={"use_reentrant": False})
        return "checkpointing: the model's own gradient_checkpointing_enable"
    own_switch = getattr(model, "set_grad_checkpointing", None)
    if own_switch is not None:
        own_switch(True)
        return "checkpointing: the model's own set_grad_checkpointing"
    blocks = _repeated_blocks(model)
    if not blocks:
        raise BadInput("checkpointing was asked for, but the model has no repeated blocks to apply it to.")
    for block in blocks:
        block.forward = functools.partial(_checkpointed, block.forward)
    return f"checkpointing: each of {len(blocks)} repeated blocks"


def _checkpointed(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def _repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """In the outermost lists, modules with inner structure whose class recurs: a Transformer's layers, a stage."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        children = list(module.children())
        kinds = Counter(type(child) for child in children)
        for child in children:
            in_a_list = isinstance(module, (nn.ModuleList, nn.Sequential))
            if in_a_list and kinds[type(child)] >= 2 and any(True for _ in child.children()):
                found.append(child)
            else:
                visit(child)

    visit(model)
    return found
