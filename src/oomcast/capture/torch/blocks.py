"""The repeated blocks of a model, like a Transformer's layers: where they are, and a model with fewer of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn

from ...errors import BadInput

__all__ = ["keep_first_blocks", "repeated_blocks"]

_LISTS = (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """In the outermost lists, modules with inner structure whose class recurs: a Transformer's layers, a stage."""
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        children = list(module.children())
        kinds = Counter(type(child) for child in children)
        for child in children:
            in_a_list = isinstance(module, _LISTS)
            if in_a_list and kinds[type(child)] >= 2 and any(True for _ in child.children()):
                found.append(child)
            else:
                visit(child)

    visit(model)
    return found


def keep_first_blocks(model: nn.Module, count: int) -> str:
    """Take all but the first blocks out of the model, and say in a sentence what was done.

    Only where they stand in one list and are alike: what the others would add is then the same for each.
    """
    blocks = repeated_blocks(model)
    if count > len(blocks):
        raise BadInput(f"--blocks {count}: the model has {len(blocks)} repeated blocks.")
    owner = next((module for module in model.modules() if any(child is blocks[0] for child in module.children())), None)
    if owner is None or not all(any(child is block for child in owner.children()) for block in blocks):
        raise BadInput(f"--blocks {count}: the repeated blocks of the model stand in several lists.")
    if len({_form(block) for block in blocks}) > 1:
        raise BadInput(f"--blocks {count}: the repeated blocks of the model differ from each other.")
    dropped = {id(block) for block in blocks[count:]}
    for name, child in list(owner.named_children()):
        if id(child) in dropped:
            del owner._modules[name]
    return f"the model has its first {count} of {len(blocks)} blocks, as --blocks says"


def _form(block: nn.Module) -> tuple[Any, ...]:
    parameters = tuple((name, tuple(p.shape), p.dtype, p.requires_grad) for name, p in block.named_parameters())
    return type(block), parameters
