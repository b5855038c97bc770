"""The types of the specification language: what fits what, how a value is checked, and which operators there are.

Operators on sequences and numbers are named as in SOFL where it has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ....errors import UnknownName, UnreadableFile

__all__ = [
    "ANY",
    "BOOL",
    "BUILTINS",
    "INT",
    "NUMBERS",
    "REAL",
    "STRING",
    "Builtin",
    "Place",
    "SpecificationError",
    "Type",
    "Undefined",
    "UnknownInSpecification",
    "accepts",
    "joined",
    "sequence_of",
]


@dataclass(frozen=True)
class Place:
    """A place in a specification's text; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class SpecificationError(UnreadableFile):
    """A specification that does not follow the language. Its text starts with the place."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(f"{place}: {message}")
        self.place = place


class UnknownInSpecification(UnknownName):
    """A name that a specification uses and nobody defined."""

    def __init__(self, place: Place, kind: str, name: str, known: list[str]) -> None:
        super().__init__(f"{kind} at {place},", name, known)
        self.place = place


class Undefined(Exception):
    """Raised for an expression without a value: an index outside a sequence, a division by zero.

    A condition that has no value does not hold.
    """


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
    fitting = tuple(part for part in parts if part is not None)
    return Type(left.name, fitting) if fitting and len(fitting) == len(parts) else None


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


Result = Callable[[list[Type]], "Type | None"]


@dataclass(frozen=True)
class Builtin:
    """`result` gives the type for the arguments' types, or None if they do not fit."""

    call: Callable[..., Any]
    arity: tuple[int, int]
    takes: str
    result: Result


def _sequence_to(result: Callable[[Type], Type | None]) -> Result:
    return lambda types: result(types[0].parts[0]) if types[0].name == "seq" else None


def _number_to(type_: Type | None) -> Result:
    return lambda types: (type_ or types[0]) if types[0] in NUMBERS else None


def _all_numbers(types: list[Type]) -> Type | None:
    return None if any(type_ not in NUMBERS for type_ in types) else REAL if REAL in types else INT


def _same_sequences(types: list[Type]) -> Type | None:
    common: Type | None = types[0]
    for type_ in types[1:]:
        common = joined(common, type_) if common else None
    return common if common and common.name == "seq" else None


def _number_element(element: Type) -> Type | None:
    return INT if element == ANY else element if element in NUMBERS else None


def _head(sequence: tuple[Any, ...]) -> Any:
    if not sequence:
        raise Undefined("an empty sequence has no first element")
    return sequence[0]


def _tail(sequence: tuple[Any, ...]) -> tuple[Any, ...]:
    if not sequence:
        raise Undefined("an empty sequence has no rest")
    return sequence[1:]


def _last(sequence: tuple[Any, ...]) -> Any:
    if not sequence:
        raise Undefined("an empty sequence has no last element")
    return sequence[-1]


def _joined_sequences(*sequences: tuple[Any, ...]) -> tuple[Any, ...]:
    return sum(map(tuple, sequences), ())


BUILTINS: dict[str, Builtin] = {
    "len": Builtin(len, (1, 1), "a sequence", _sequence_to(lambda _: INT)),
    "inds": Builtin(lambda s: range(1, len(s) + 1), (1, 1), "a sequence", _sequence_to(lambda _: sequence_of(INT))),
    "hd": Builtin(_head, (1, 1), "a sequence", _sequence_to(lambda element: element)),
    "tl": Builtin(_tail, (1, 1), "a sequence", _sequence_to(sequence_of)),
    "last": Builtin(_last, (1, 1), "a sequence", _sequence_to(lambda element: element)),
    "conc": Builtin(_joined_sequences, (1, 9), "sequences of the same type", _same_sequences),
    "sum": Builtin(sum, (1, 1), "a sequence of numbers", _sequence_to(_number_element)),
    "prod": Builtin(math.prod, (1, 1), "a sequence of numbers", _sequence_to(_number_element)),
    "min": Builtin(min, (2, 9), "numbers", _all_numbers),
    "max": Builtin(max, (2, 9), "numbers", _all_numbers),
    "abs": Builtin(abs, (1, 1), "a number", _number_to(None)),
    "floor": Builtin(math.floor, (1, 1), "a number", _number_to(INT)),
    "ceil": Builtin(math.ceil, (1, 1), "a number", _number_to(INT)),
}
