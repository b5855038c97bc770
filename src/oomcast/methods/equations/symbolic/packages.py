"""Packages that only symbolic regression needs: loaded when they are used, and named in a sentence when missing."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["MissingPackage", "needed"]

_OF_THE_SEARCH = ("pyoperon", "deap", "scipy")


class MissingPackage(ImportError):
    """A package of the extras `equations` or `baselines` is not installed."""


def needed(module: str) -> Any:
    """The module; if its package is missing, an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        extra = "equations" if package in _OF_THE_SEARCH else "baselines"
        raise MissingPackage(f"{package} is not installed: pip install 'oomcast[{extra}]'", name=package) from None
