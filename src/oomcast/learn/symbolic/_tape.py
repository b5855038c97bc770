"""An expression as a list of steps, for values and derivatives by its constants at many constants in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from ._expression import Constant, Expression, Floats, Maximum, Power, Product, Sum, Variable, raised

__all__ = ["Tape"]


class _Step(Enum):
    CONSTANT = auto()
    VARIABLE = auto()
    ADD = auto()
    MULTIPLY = auto()
    MAXIMUM = auto()
    POWER = auto()


class Tape:
    """The steps from the leaves to the root; each names the places of its parts (or a constant's, or an exponent)."""

    def __init__(self, expression: Expression, columns: Mapping[str, Floats]) -> None:
        self.rows = len(next(iter(columns.values())))
        self.columns = columns
        self.steps: list[tuple[_Step, int, int]] = []
        self.known: list[Any] = []
        """Values that no constant changes; None for the others."""
        self.constants = 0
        self._add(expression)

    def _add(self, expression: Expression) -> int:
        match expression:
            case Constant():
                self.constants += 1
                return self._push(_Step.CONSTANT, self.constants - 1, 0, None)
            case Variable(name):
                return self._push(_Step.VARIABLE, 0, 0, self.columns[name])
            case Power(base, exponent):
                place = self._add(base)
                known = self.known[place]
                return self._push(_Step.POWER, place, exponent, None if known is None else raised(known, exponent))
            case Sum(parts):
                return self._join(_Step.ADD, parts)
            case Product(parts):
                return self._join(_Step.MULTIPLY, parts)
            case Maximum(parts):
                return self._join(_Step.MAXIMUM, parts)

    def _join(self, step: _Step, parts: Sequence[Expression]) -> int:
        place = self._add(parts[0])
        for part in parts[1:]:
            other = self._add(part)
            first, second = self.known[place], self.known[other]
            known = None if first is None or second is None else _joined(step, first, second)
            place = self._push(step, place, other, known)
        return place

    def _push(self, step: _Step, first: int, second: int, known: Any) -> int:
        self.steps.append((step, first, second))
        self.known.append(known)
        return len(self.steps) - 1

    def value_and_slopes(self, numbers: Sequence[float]) -> tuple[Floats, Floats]:
        """The expression with these constants at each row, and its derivative by each of them (rows, constants)."""
        values = self.known.copy()
        for place, (step, first, second) in enumerate(self.steps):
            if values[place] is None:
                if step is _Step.CONSTANT:
                    values[place] = numbers[first]
                elif step is _Step.POWER:
                    values[place] = raised(values[first], second)
                else:
                    values[place] = _joined(step, values[first], values[second])
        slopes = np.zeros((self.rows, self.constants))
        found: list[Any] = [None] * len(values)
        found[-1] = 1.0
        for place in range(len(values) - 1, -1, -1):
            slope = found[place]
            if slope is None or self.known[place] is not None:
                continue
            step, first, second = self.steps[place]
            if step is _Step.CONSTANT:
                slopes[:, first] = slope
            elif step is _Step.POWER:
                found[first] = slope * second * raised(values[first], second - 1)
            elif step is _Step.ADD:
                found[first] = found[second] = slope
            elif step is _Step.MULTIPLY:
                found[first], found[second] = slope * values[second], slope * values[first]
            else:
                larger = np.greater_equal(values[first], values[second])
                found[first], found[second] = np.where(larger, slope, 0.0), np.where(larger, 0.0, slope)
        return np.broadcast_to(np.asarray(values[-1], dtype=np.float64), (self.rows,)), slopes


def _joined(step: _Step, first: Any, second: Any) -> Any:
    if step is _Step.ADD:
        return first + second
    return first * second if step is _Step.MULTIPLY else np.maximum(first, second)
