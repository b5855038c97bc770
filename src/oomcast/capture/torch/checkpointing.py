"""Activation checkpointing for any model: its own switch where it has one, its repeated blocks, or chosen modules."""

from __future__ import annotations

import fnmatch
import functools
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ...errors import BadInput, UnknownName
from .blocks import repeated_blocks

__all__ = ["enable_checkpointing"]

_OWN_SWITCHES: dict[str, dict[str, Any]] = {
    "gradient_checkpointing_enable": {"gradient_checkpointing_kwargs": {"use_reentrant": False}},
    "enable_gradient_checkpointing": {},
    "set_grad_checkpointing": {"enable": True},
}
"""The switches that models of transformers, diffusers and timm have, with what they are given."""
_NOT_CALLED = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict)


def enable_checkpointing(model: nn.Module, names: tuple[str, ...] = ()) -> str:
    """Turn it on, for the modules of these names where there are any, and say in a sentence how."""
    if names:
        return _checkpoint_named(model, names)
    for name, settings in _OWN_SWITCHES.items():
        own_switch: Any = getattr(model, name, None)
        if own_switch is not None:
            own_switch(**settings)
            return f"checkpointing: the model's own {name}"
    blocks = repeated_blocks(model)
    if not blocks:
        raise BadInput(
            "checkpointing was asked for, but the model has no repeated blocks to apply it to; name modules with "
            "--checkpoint-modules."
        )
    for block in blocks:
        _checkpoint(block)
    return f"checkpointing: each of {len(blocks)} repeated blocks"


def _checkpoint_named(model: nn.Module, names: tuple[str, ...]) -> str:
    modules = {name: module for name, module in model.named_modules() if name}
    chosen: dict[str, nn.Module] = {}
    for wanted in names:
        found = [name for name in modules if _is_meant(wanted, name)]
        if not found:
            raise UnknownName("module", wanted, modules)
        chosen.update((name, modules[name]) for name in found)
    for name, module in chosen.items():
        if isinstance(module, _NOT_CALLED):
            raise BadInput(
                f"the module {name} is a {type(module).__name__}, which is never called itself; "
                f"checkpoint its members, {name}.*"
            )
        _checkpoint(module)
    config: Any = getattr(model, "config", None)
    cached = getattr(config, "use_cache", False) is True
    if cached:
        config.use_cache = False  # as transformers does: a layer that runs twice would extend the cache twice
    return f"checkpointing: {', '.join(chosen)}" + (", with use_cache off" if cached else "")


def _is_meant(wanted: str, name: str) -> bool:
    """Part by part: `layers.*` is each layer, not what is within it."""
    patterns, parts = wanted.split("."), name.split(".")
    return len(patterns) == len(parts) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _checkpoint(module: nn.Module) -> None:
    module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)
