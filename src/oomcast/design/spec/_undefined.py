"""An expression without a value: an index outside a sequence, a division by zero."""

from __future__ import annotations

__all__ = ["Undefined"]


class Undefined(Exception):
    """Raised while a condition is computed. A condition that has no value does not hold."""
