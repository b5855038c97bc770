"""The operators on sequences and numbers that the language has by itself, named as in SOFL where it has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._types import ANY, INT, NUMBERS, REAL, Type, joined, sequence_of
from ._undefined import Undefined

__all__ = ["BUILTINS", "Builtin"]

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
    found: Type | None = types[0]
    for type_ in types[1:]:
        found = joined(found, type_) if found else None
    return found if found and found.name == "seq" else None


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
