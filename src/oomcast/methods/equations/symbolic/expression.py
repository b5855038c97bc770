"""Expressions: trees of constants, variables, sums, products, whole powers and maxima. Plain data, never code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Constant",
    "Expression",
    "Maximum",
    "Power",
    "Product",
    "Sum",
    "Variable",
    "constants",
    "from_plain",
    "raised",
    "size",
    "to_plain",
    "value",
    "variables",
    "with_constants",
]

Floats: TypeAlias = NDArray[np.float64]

_DEEPEST = 200
_LARGEST_POWER = 64


@dataclass(frozen=True)
class Constant:
    value: float


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Sum:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Product:
    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Power:
    base: Expression
    exponent: int


@dataclass(frozen=True)
class Maximum:
    parts: tuple[Expression, ...]


Expression: TypeAlias = Constant | Variable | Sum | Product | Power | Maximum
_KEYS: dict[type[Sum] | type[Product] | type[Maximum], str] = {Sum: "add", Product: "multiply", Maximum: "maximum"}


def size(expression: Expression) -> int:
    """The number of nodes if sums, products and maxima take two parts each; a power is one node."""
    match expression:
        case Constant() | Variable():
            return 1
        case Power(base, _):
            return 1 + size(base)
        case Sum(parts) | Product(parts) | Maximum(parts):
            return len(parts) - 1 + sum(map(size, parts))


def variables(expression: Expression) -> frozenset[str]:
    """The names that appear."""
    match expression:
        case Constant():
            return frozenset()
        case Variable(name):
            return frozenset([name])
        case Power(base, _):
            return variables(base)
        case Sum(parts) | Product(parts) | Maximum(parts):
            return frozenset[str]().union(*map(variables, parts))


def value(expression: Expression, columns: Mapping[str, Floats]) -> Any:
    """The expression at each row (an array); a plain number where no variable appears."""
    match expression:
        case Constant(number):
            return number
        case Variable(name):
            return columns[name]
        case Power(base, exponent):
            return raised(value(base, columns), exponent)
        case Sum(parts):
            return sum((value(part, columns) for part in parts), 0.0)
        case Product(parts):
            return math.prod((value(part, columns) for part in parts), start=1.0)
        case Maximum(parts):
            return reduce(np.maximum, (value(part, columns) for part in parts))


def raised(base: Any, exponent: int) -> Any:
    """A whole power by multiplication: quick for small ones, and infinite, not an error, where it is too large."""
    result = base
    for _ in range(exponent - 1):
        result = result * base
    return result


def constants(expression: Expression) -> tuple[float, ...]:
    """All constants, from left to right."""
    match expression:
        case Constant(number):
            return (number,)
        case Variable():
            return ()
        case Power(base, _):
            return constants(base)
        case Sum(parts) | Product(parts) | Maximum(parts):
            return tuple(number for part in parts for number in constants(part))


def with_constants(expression: Expression, numbers: Sequence[float]) -> Expression:
    """The same form with these constants, from left to right."""
    if len(numbers) != len(constants(expression)):
        raise ValueError(f"{len(numbers)} constants for {len(constants(expression))} places")
    return _replaced(expression, iter(numbers))


def _replaced(expression: Expression, numbers: Iterator[float]) -> Expression:
    match expression:
        case Constant():
            return Constant(float(next(numbers)))
        case Variable():
            return expression
        case Power(base, exponent):
            return Power(_replaced(base, numbers), exponent)
        case Sum(parts) | Product(parts) | Maximum(parts):
            return type(expression)(tuple(_replaced(part, numbers) for part in parts))


def to_plain(expression: Expression) -> Any:
    """As JSON: a number, a name, or one operation with its parts."""
    match expression:
        case Constant(number):
            return number
        case Variable(name):
            return name
        case Power(base, exponent):
            return {"power": [to_plain(base), exponent]}
        case Sum(parts) | Product(parts) | Maximum(parts):
            return {_KEYS[type(expression)]: [to_plain(part) for part in parts]}


def from_plain(plain: Any, names: Sequence[str], depth: int = 0) -> Expression:
    """What `to_plain` made; anything else is a ValueError."""
    if depth > _DEEPEST:
        raise ValueError("the expression is nested too deeply")
    if isinstance(plain, str):
        if plain not in names:
            raise ValueError(f"the expression uses {plain!r}, which is not among the variables")
        return Variable(plain)
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        try:
            number = float(plain)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ValueError("a constant is not a finite number")
        return Constant(number)
    if not isinstance(plain, dict) or len(plain) != 1:
        raise ValueError("a part of the expression is neither a number, a name nor one operation")
    ((key, parts),) = plain.items()
    if not isinstance(parts, list) or len(parts) < 2:
        raise ValueError(f"the operation {key!r} needs a list of at least two parts")
    if key == "power":
        base, exponent = parts[0], parts[-1]
        if len(parts) != 2 or type(exponent) is not int or not 2 <= exponent <= _LARGEST_POWER:
            raise ValueError(f"a power needs a base and a whole exponent from 2 to {_LARGEST_POWER}")
        return Power(from_plain(base, names, depth + 1), exponent)
    for kind, known in _KEYS.items():
        if key == known:
            return kind(tuple(from_plain(part, names, depth + 1) for part in parts))
    raise ValueError(f"unknown operation {key!r}")
