"""Learners that know nothing of memory: numbers in, numbers out."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._conformal import GroupCoverage, QuantileCurve, group_curve, group_quantile, group_range, leave_group_out

if TYPE_CHECKING:
    from ._polynomial import PolynomialRegression, Term
    from .symbolic import Equation, SearchConfig, SymbolicRegression

__all__ = [
    "Equation",
    "GroupCoverage",
    "PolynomialRegression",
    "QuantileCurve",
    "SearchConfig",
    "SymbolicRegression",
    "Term",
    "group_curve",
    "group_quantile",
    "group_range",
    "leave_group_out",
]

_HOMES = {
    "Equation": ".symbolic",
    "PolynomialRegression": "._polynomial",
    "SearchConfig": ".symbolic",
    "SymbolicRegression": ".symbolic",
    "Term": "._polynomial",
}


def __getattr__(name: str) -> Any:
    """What needs numpy is loaded when first used: every estimate needs the rest of this room, and no numpy."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'oomcast.learn' has no attribute {name!r}")
    return getattr(importlib.import_module(home, __name__), name)
