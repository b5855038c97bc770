"""Names of a room that are loaded when they are first used, so that a room costs only what is asked of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from .errors import BadInput

__all__ = ["lazy_names", "missing_package"]


def lazy_names(room: str, homes: Mapping[str, tuple[str, ...]], extra: str = "") -> Callable[[str], Any]:
    """The `__getattr__` of a room: `homes` tells which of its modules (`.gap`) defines which names.

    Where a module needs a package that is not installed, the sentence names the extra that brings it.
    """
    module_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(module, room), name)
        except ModuleNotFoundError as error:
            if not extra or error.name is None or error.name.startswith("oomcast"):
                raise
            raise missing_package(error, extra) from None

    return load


def missing_package(error: ImportError, extra: str) -> BadInput:
    """The sentence for a package that only one extra of oomcast brings."""
    return BadInput(f"this needs the package {error.name}; install it with: pip install 'oomcast[{extra}]'")
