"""Symbolic regression: from samples to an equation. It knows nothing of what the numbers stand for."""

from __future__ import annotations

from ._config import SearchConfig
from ._equation import Equation
from ._packages import MissingPackage
from ._regression import SymbolicRegression

__all__ = ["Equation", "MissingPackage", "SearchConfig", "SymbolicRegression"]
