"""Symbolic regression: from samples to an equation. It knows nothing of what the numbers stand for."""

from __future__ import annotations

from .config import OnGeneration, SearchConfig, SearchState
from .equation import Equation
from .packages import MissingPackage
from .regression import SymbolicRegression

__all__ = ["Equation", "MissingPackage", "OnGeneration", "SearchConfig", "SearchState", "SymbolicRegression"]
