"""Operators by their names, as far as the installed torch has them.

The rules of this package span several versions of torch: one that lacks an operator never meets it, so its rule is left
out of the table instead of failing the import.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch

__all__ = ["by_operator", "operator"]

_Rule = TypeVar("_Rule")


def operator(name: str) -> Any | None:
    """The operator called `softmax.int` (of ATen) or `torchvision::nms`; None where the installed torch has none."""
    namespace, _, rest = name.rpartition("::")
    base, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace or "aten"), base, None)
    return getattr(packet, overload or "default", None)


def by_operator(rules: Mapping[str, _Rule]) -> dict[Any, _Rule]:
    """The rules by operator, without those for operators that the installed torch lacks."""
    table = {operator(name): rule for name, rule in rules.items()}
    table.pop(None, None)
    return table
