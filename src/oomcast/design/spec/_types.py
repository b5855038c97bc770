"""The types of the specification language, what fits what, and how a Python value is checked against one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ANY", "BOOL", "INT", "NUMBERS", "REAL", "STRING", "Type", "accepts", "joined", "sequence_of"]


@dataclass(frozen=True)
class Type:
    """A plain type by its name; `seq` with the type of its elements; `tuple` with the type of each place."""

    name: str
    parts: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.name == "seq":
            return f"seq of {self.parts[0]}"
        if self.name == "tuple":
            return f"tuple({', '.join(map(str, self.parts))})"
        return self.name

    def widened(self) -> Type:
        """The type in which expressions compute: naturals are integers."""
        if self.name in ("nat", "nat0"):
            return INT
        return Type(self.name, tuple(part.widened() for part in self.parts))


INT, REAL, BOOL, STRING = Type("int"), Type("real"), Type("bool"), Type("string")
NUMBERS = (INT, REAL)
ANY = Type("any")
"""The type of the elements of an empty sequence: it fits every other."""

_LEAST = {"nat": 1, "nat0": 0}


def sequence_of(element: Type) -> Type:
    return Type("seq", (element,))


def joined(left: Type, right: Type) -> Type | None:
    """The narrowest type of which both are, or None if they do not fit together."""
    if left == right or right == ANY:
        return left
    if left == ANY:
        return right
    if left in NUMBERS and right in NUMBERS:
        return REAL
    if left.name != right.name or len(left.parts) != len(right.parts):
        return None
    parts = tuple(joined(ours, theirs) for ours, theirs in zip(left.parts, right.parts, strict=True))
    found = tuple(part for part in parts if part is not None)
    return Type(left.name, found) if found and len(found) == len(parts) else None


def accepts(type_: Type, value: Any) -> bool | None:
    """True if the value is of the type, None if it is but lies outside a natural's range, False if it is not."""
    name = type_.name
    if name in ("int", "nat", "nat0"):
        if value.__class__ is not int:
            return False
        return True if value >= _LEAST.get(name, value) else None
    if name == "bool":
        return value.__class__ is bool
    if name == "string":
        return isinstance(value, str)
    if name == "real":
        return value.__class__ in (int, float)
    if not isinstance(value, (tuple, list)) or (name == "tuple" and len(value) != len(type_.parts)):
        return False
    parts = type_.parts * len(value) if name == "seq" else type_.parts
    answers = [accepts(part, item) for part, item in zip(parts, value, strict=True)]
    return False if False in answers else None if None in answers else True
