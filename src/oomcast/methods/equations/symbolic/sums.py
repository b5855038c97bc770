"""Sums of products: from samples to the best sums of 1, 2, ... terms, and from any expression to its simplest form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from .expression import Constant, Expression, Floats, Maximum, Power, Product, Sum, Variable, raised, size
from .monomials import Candidates, best_subsets

__all__ = [
    "Powers",
    "SumOfProducts",
    "best_sums",
    "criterion",
    "polynomial",
    "simplified",
    "sum_of_products",
    "unscaled",
]

_EXACT = 1e-14
_PATIENCE = 3
_ROUNDS = 5
_SETTLED = 0.05
_HUBER = 1.345
_NORMAL = 1.4826
"""A normal distribution's standard deviation over its median absolute value."""
_ROUNDING = 1e-7


@dataclass(frozen=True)
class SumOfProducts:
    """Exponents and a factor for each term; the lower the criterion, the more the sum is to be trusted."""

    powers: tuple[tuple[int, ...], ...]
    factors: tuple[float, ...]
    criterion: float


def criterion(rows: int, misfit: float, constants: int, choices: float) -> float:
    """The extended Bayesian information criterion of a sum of squared relative errors.

    `choices` is the logarithm of how many forms there were to choose from: a form must fit better than chance would
    among so many.
    """
    return rows * math.log(max(misfit / rows, _EXACT)) + constants * math.log(rows) + 2 * choices


def best_sums(
    x: Floats, y: Floats, powers: Sequence[tuple[int, ...]], most: int, signed: bool = False
) -> list[SumOfProducts]:
    """For 1, 2, ... terms the best sum that is found, until several in a row are to be trusted less.

    Rows far from the sum that is to be trusted most get smaller weights (Huber's), and the search is done again: one
    odd row shall not decide which terms there are.
    """
    candidates = Candidates.of(x, y, powers)
    weights = np.ones(len(y))
    for _ in range(_ROUNDS):
        sums = _weighted(candidates, weights, most, signed)
        best = min(sums, key=lambda one: one.criterion)
        places = [candidates.powers.index(powers) for powers in best.powers]
        errors = np.abs(candidates.columns[:, places] @ (best.factors * candidates.scale[places]) - 1)
        usual = _NORMAL * float(np.median(errors)) * math.sqrt(len(y) / max(1, len(y) - len(places)))
        after = np.minimum(1.0, _HUBER * usual / np.maximum(errors, _ROUNDING))
        if usual < _ROUNDING or np.abs(after - weights).max() < _SETTLED:
            break
        weights = after
    return sums


def _weighted(candidates: Candidates, weights: Floats, most: int, signed: bool) -> list[SumOfProducts]:
    target = np.sqrt(weights)
    columns, rows = candidates.columns * target[:, None], len(target)
    sums: list[SumOfProducts] = []
    for subset, misfit in best_subsets(columns, target, candidates.prices, most, signed):
        places = list(subset)
        factors, *_ = np.linalg.lstsq(columns[:, places], target, rcond=None)
        sums.append(
            SumOfProducts(
                tuple(candidates.powers[place] for place in subset),
                tuple(float(factor) for factor in factors / candidates.scale[places]),
                criterion(
                    rows, misfit, len(subset), float(candidates.prices[places].sum()) - math.lgamma(len(subset) + 1)
                ),
            )
        )
        best = min(range(len(sums)), key=lambda place: sums[place].criterion)
        if len(sums) - 1 - best >= _PATIENCE:
            break
    return sums


Powers: TypeAlias = tuple[tuple[str, int], ...]
"""A product of powers: names in order, each with its exponent; empty for the constant."""

_MOST_TERMS = 200


def simplified(expression: Expression) -> Expression:
    """The shorter one of the sum of products and of the expression with its constants folded."""
    folded = _folded(expression)
    terms = polynomial(folded)
    if terms is None:
        return folded
    expanded = sum_of_products(terms)
    return expanded if size(expanded) <= size(folded) else folded


def unscaled(expression: Expression, scales: Mapping[str, float], factor: float) -> Expression:
    """The same in the variables' own units: each was divided by its scale, the response by a factor."""

    def own(part: Expression) -> Expression:
        match part:
            case Constant():
                return part
            case Variable(name):
                return Product((Constant(1 / scales[name]), part))
            case Power(base, exponent):
                return Power(own(base), exponent)
            case Sum(parts) | Product(parts) | Maximum(parts):
                return type(part)(tuple(map(own, parts)))

    return simplified(Product((Constant(factor), own(expression))))


def polynomial(expression: Expression) -> dict[Powers, float] | None:
    """The coefficients of the products of powers; None if there is a maximum, or too many terms."""
    match expression:
        case Constant(number):
            return {(): number}
        case Variable(name):
            return {((name, 1),): 1.0}
        case Power(base, exponent):
            return _product([polynomial(base)] * exponent)
        case Product(parts):
            return _product([polynomial(part) for part in parts])
        case Sum(parts):
            total: dict[Powers, float] = {}
            for part in parts:
                terms = polynomial(part)
                if terms is None:
                    return None
                for powers, coefficient in terms.items():
                    total[powers] = total.get(powers, 0.0) + coefficient
            return total if len(total) <= _MOST_TERMS else None
        case Maximum():
            return None


def _product(factors: list[dict[Powers, float] | None]) -> dict[Powers, float] | None:
    total: dict[Powers, float] = {(): 1.0}
    for factor in factors:
        if factor is None or len(total) * len(factor) > _MOST_TERMS**2:
            return None
        product: dict[Powers, float] = {}
        for powers, coefficient in total.items():
            for others, other in factor.items():
                exponents = dict(powers)
                for name, exponent in others:
                    exponents[name] = exponents.get(name, 0) + exponent
                key = tuple(sorted(exponents.items()))
                product[key] = product.get(key, 0.0) + coefficient * other
        total = product
        if len(total) > _MOST_TERMS:
            return None
    return total


def sum_of_products(terms: Mapping[Powers, float]) -> Expression:
    """The terms as an expression, the highest degree first; those of coefficient 0 are left out."""
    ordered = sorted(terms.items(), key=lambda term: (-sum(power for _, power in term[0]), term[0]))
    parts = [_term(powers, coefficient) for powers, coefficient in ordered if coefficient]
    if not parts:
        return Constant(0.0)
    return parts[0] if len(parts) == 1 else Sum(tuple(parts))


def _term(powers: Powers, coefficient: float) -> Expression:
    factors: list[Expression] = [
        Variable(name) if exponent == 1 else Power(Variable(name), exponent) for name, exponent in powers
    ]
    if coefficient != 1 or not factors:
        factors.insert(0, Constant(coefficient))
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def _folded(expression: Expression) -> Expression:
    """Nested sums and products made flat, constants joined, what changes nothing left out."""
    match expression:
        case Constant() | Variable():
            return expression
        case Power(base, exponent):
            inner = _folded(base)
            match inner:
                case Constant(number):
                    return Constant(raised(number, exponent))
                case Power(deeper, other):
                    return Power(deeper, other * exponent)
            return Power(inner, exponent)
        case Maximum(parts):
            different = tuple(dict.fromkeys(map(simplified, parts)))
            return different[0] if len(different) == 1 else Maximum(different)
        case Sum(parts) | Product(parts):
            kind, neutral = type(expression), 0.0 if isinstance(expression, Sum) else 1.0
            flat: list[Expression] = []
            for part in map(_folded, parts):
                flat.extend(part.parts if isinstance(part, (Sum, Product)) and type(part) is kind else [part])
            numbers = [part.value for part in flat if isinstance(part, Constant)]
            number = math.fsum(numbers) if kind is Sum else math.prod(numbers)
            rest: list[Expression] = [part for part in flat if not isinstance(part, Constant)]
            if kind is Product:
                rest = _collected(rest)
            if not rest or (kind is Product and number == 0):
                return Constant(number)
            if number != neutral:
                rest.insert(len(rest) if kind is Sum else 0, Constant(number))
            return rest[0] if len(rest) == 1 else kind(tuple(rest))


def _collected(factors: Sequence[Expression]) -> list[Expression]:
    """Equal factors as one power, in the order of their first appearance."""
    exponents: dict[Expression, int] = {}
    for factor in factors:
        base, exponent = (factor.base, factor.exponent) if isinstance(factor, Power) else (factor, 1)
        exponents[base] = exponents.get(base, 0) + exponent
    return [base if exponent == 1 else Power(base, exponent) for base, exponent in exponents.items()]
