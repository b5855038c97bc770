"""The constants of an expression: fitted to samples by its derivatives.

An expression is written down as a list of steps, so that values and derivatives for many choices of its constants are
computed without walking its tree again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

import numpy as np

from .expression import (
    Constant,
    Expression,
    Floats,
    Maximum,
    Power,
    Product,
    Sum,
    Variable,
    constants,
    raised,
    value,
    with_constants,
)

__all__ = ["Tape", "levenberg_marquardt", "relative_errors"]


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


# The constants of a form are fitted by Levenberg-Marquardt on the relative error.
#
# Written out here because the same samples must give the same bits: MINPACK as scipy 1.17 has it does not where two
# constants do one's work, which is usual in a search.


_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-12, 1e8
_CALMER, _BOLDER = 10.0, 0.1
_CONVERGED = 1e-12
_FLAT = 1e-12
"""Added to the damping of constants that change nothing, as a share of the largest."""


def relative_errors(expression: Expression, columns: Mapping[str, Floats], y: Floats) -> Floats:
    """Value over response, less 1, at each row; not finite where the value is not."""
    with np.errstate(all="ignore"):
        errors: Floats = value(expression, columns) / y - 1
    return errors


def levenberg_marquardt(
    expression: Expression, columns: Mapping[str, Floats], y: Floats, iterations: int
) -> Expression:
    """The form with constants of a smaller sum of squared relative errors; as it was where none is found."""
    start = np.array(constants(expression))
    if not iterations or not 0 < len(start) <= len(y):
        return expression
    tape = Tape(expression, columns)

    def errors_and_slopes(at: Floats) -> tuple[Floats, Floats, float]:
        values, slopes = tape.value_and_slopes(at.tolist())
        errors = values / y - 1
        return errors, slopes / y[:, None], float(errors @ errors)

    with np.errstate(all="ignore"):
        numbers, damping = start, _FIRST_DAMPING
        errors, slopes, loss = errors_and_slopes(numbers)
        for _ in range(iterations):
            curvature, downhill = slopes.T @ slopes, slopes.T @ errors
            sizes = np.diag(curvature)
            if not (np.isfinite(curvature).all() and np.isfinite(downhill).all()) or not sizes.max() > 0:
                break
            damped = curvature + np.diag(damping * (sizes + _FLAT * sizes.max()))
            try:
                tried = numbers - np.linalg.solve(damped, downhill)
            except np.linalg.LinAlgError:
                break
            after, slopes_after, loss_after = errors_and_slopes(tried)
            if loss_after < loss:
                converged = loss - loss_after <= _CONVERGED * loss
                numbers, errors, slopes, loss = tried, after, slopes_after, loss_after
                damping = max(damping * _BOLDER, _LEAST_DAMPING)
                if converged:
                    break
            else:
                damping *= _CALMER
                if damping > _MOST_DAMPING:
                    break
    return expression if numbers is start else with_constants(expression, numbers.tolist())
