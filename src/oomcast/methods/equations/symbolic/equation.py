"""One equation: an expression over named variables with its error; shown, saved, rounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import text as _text
from .expression import (
    Constant,
    Expression,
    Floats,
    Product,
    constants,
    from_plain,
    size,
    to_plain,
    value,
    variables,
    with_constants,
)
from .samples import table
from .sums import polynomial, simplified, sum_of_products

__all__ = ["Equation"]

_UNCHANGED = 1e-3
"""An error is the same if it grows by less than this share of itself ..."""
_ROUNDING = 1e-9
"""... or by less than this."""
_ALL_DIGITS = 17


@dataclass(frozen=True)
class Equation:
    """An equation over `names`, all variables that were offered to it; those that it needs are `used`.

    `error` is the mean absolute percentage error on the rows that it was fitted to, as a fraction.
    """

    expression: Expression
    names: tuple[str, ...]
    error: float = math.nan

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise ValueError("two variables have the same name")
        if unknown := variables(self.expression) - set(self.names):
            raise ValueError(f"the expression uses {min(unknown)!r}, which is not among the variables")

    @property
    def size(self) -> int:
        """The number of nodes of the expression."""
        return size(self.expression)

    @property
    def used(self) -> tuple[str, ...]:
        """The variables that appear in it."""
        appearing = variables(self.expression)
        return tuple(name for name in self.names if name in appearing)

    @property
    def terms(self) -> tuple[tuple[float, dict[str, int]], ...] | None:
        """As a sum of products: each coefficient with the powers of its variables. None if it is no such sum."""
        products = polynomial(self.expression)
        return (
            None if products is None else tuple((number, dict(powers)) for powers, number in products.items() if number)
        )

    def predict(self, x: ArrayLike) -> Floats:
        """The equation at each row; the columns are `names`, in order."""
        rows = table(x, self.names)
        columns = dict(zip(self.names, rows.T, strict=True))
        with np.errstate(over="ignore", invalid="ignore"):
            predicted = value(self.expression, columns)
        return np.array(np.broadcast_to(np.asarray(predicted, dtype=np.float64), len(rows)))

    def mape(self, x: ArrayLike, y: ArrayLike) -> float:
        """The mean absolute percentage error on these rows, as a fraction."""
        response = np.asarray(y, dtype=np.float64)
        return float(np.abs(self.predict(x) / response - 1).mean())

    def text(self, unit: str | None = None, units: Mapping[str, str] | None = None) -> str:
        """As a line of text; with the response's unit and those of variables, each coefficient has its own."""
        return _text.text(self.expression, unit, units)

    def latex(self) -> str:
        """For a formula in LaTeX's mathematics mode."""
        return _text.latex(self.expression)

    def python(self, function_name: str = "memory") -> str:
        """The source of a Python function of all variables, in plain arithmetic."""
        return _text.python_source(self.expression, self.names, function_name)

    def simplified(self) -> Equation:
        """The same values from a shorter expression, where one is found."""
        return replace(self, expression=simplified(self.expression))

    def scaled(self, factor: float) -> Equation:
        """The response times a factor, such as 2**-30 for GiB instead of bytes."""
        terms = polynomial(self.expression)
        if terms is not None and sum_of_products(terms) == self.expression:
            return replace(self, expression=sum_of_products({key: n * factor for key, n in terms.items()}))
        return replace(self, expression=simplified(Product((Constant(factor), self.expression))))

    def rounded(self, x: ArrayLike, y: ArrayLike) -> Equation:
        """Its constants with as few digits as leave the error on these rows as it is (to a thousandth of itself)."""
        error = self.mape(x, y)
        allowed = error * (1 + _UNCHANGED) + _ROUNDING

        def with_digits(digits: Sequence[int]) -> Equation:
            numbers = [_round(number, count) for number, count in zip(exact, digits, strict=True)]
            return replace(self, expression=with_constants(self.expression, numbers))

        exact = constants(self.expression)
        common = next(d for d in range(1, _ALL_DIGITS + 1) if with_digits([d] * len(exact)).mape(x, y) <= allowed)
        digits = [common] * len(exact)
        for place in range(len(digits)):
            for fewer in range(1, common):
                tried = [*digits[:place], fewer, *digits[place + 1 :]]
                if with_digits(tried).mape(x, y) <= allowed:
                    digits = tried
                    break
        best = with_digits(digits).simplified()
        return replace(best, error=best.mape(x, y))

    def to_json(self) -> dict[str, Any]:
        """Readable, and all that `from_json` needs."""
        return {
            "kind": "equation",
            "version": 1,
            "text": self.text(),
            "names": list(self.names),
            "expression": to_plain(self.expression),
            "error": self.error if math.isfinite(self.error) else None,
        }

    @classmethod
    def from_json(cls, plain: Any) -> Equation:
        """What `to_json` made; anything else is a ValueError. Nothing is executed."""
        if not isinstance(plain, Mapping) or (plain.get("kind"), plain.get("version")) != ("equation", 1):
            raise ValueError("this is not an equation of version 1")
        names, error = plain.get("names"), plain.get("error")
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise ValueError("the equation's names must be a list of texts")
        if error is not None and (isinstance(error, bool) or not isinstance(error, (int, float)) or not error >= 0):
            raise ValueError("the equation's error must be a number that is not negative")
        if "expression" not in plain:
            raise ValueError("the equation has no expression")
        expression = from_plain(plain["expression"], names)
        return cls(expression, tuple(names), math.nan if error is None else float(error))


def _round(number: float, digits: int) -> float:
    return float(f"{number:.{digits - 1}e}")
