"""The two engines: what a search proposes, and the equations that given rows make of the proposals.

The search is slow and runs once; making equations of its proposals is fast, so it is done again for rows kept out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from . import deap_search as _deap
from . import operon_search as _operon
from .config import OnGeneration, SearchConfig
from .constants import levenberg_marquardt, relative_errors
from .expression import Expression, Floats, constants, size
from .monomials import all_powers
from .sums import best_sums, criterion, polynomial, simplified, sum_of_products

__all__ = ["Candidate", "Proposals", "propose"]

_DEGREE = 6
_MOST_CANDIDATES = 400
_MOST_PROPOSED = 40
_MOST_TERMS = 12
_ROWS_PER_TERM = 3
_REFINEMENTS = 100


@dataclass(frozen=True)
class Candidate:
    """An equation with constants; the lower the criterion, the more it is to be trusted."""

    expression: Expression
    criterion: float


class Proposals(Protocol):
    """What a search has found, for rows of the same variables."""

    def fitted(self, x: Floats, y: Floats) -> list[Candidate]:
        """Equations of several sizes, their constants fitted to these rows."""


def propose(
    x: Floats, y: Floats, names: Sequence[str], config: SearchConfig, on_generation: OnGeneration | None = None
) -> Proposals:
    """Run the search that the settings name."""
    powers = all_powers(x, _DEGREE, _MOST_CANDIDATES)
    if config.engine == "deap":
        return _Forms(tuple(_deap.search(x, y, names, config, on_generation)), tuple(names), len(powers))
    forms = _operon.search(x, y, names, config)
    signed = "subtract" in config.primitives
    sums = _Sums(tuple(powers + _further(forms, names, powers)), tuple(names), signed, config.max_size)
    others = tuple(form for form in forms if polynomial(form) is None)
    return _Both(sums, _Forms(others, tuple(names), len(powers))) if others else sums


@dataclass(frozen=True)
class _Forms:
    """Forms as they were found: only their constants are fitted again."""

    forms: tuple[Expression, ...]
    names: tuple[str, ...]
    choices: int

    def fitted(self, x: Floats, y: Floats) -> list[Candidate]:
        columns = dict(zip(self.names, x.T, strict=True))
        candidates: list[Candidate] = []
        for form in self.forms:
            expression = simplified(levenberg_marquardt(form, columns, y, _REFINEMENTS))
            errors = relative_errors(expression, columns, y) * np.ones(len(y))
            misfit = float(errors @ errors)
            if math.isfinite(misfit):
                terms = len(constants(expression))
                judged = criterion(len(y), misfit, terms, terms * math.log(self.choices) - math.lgamma(terms + 1))
                candidates.append(Candidate(expression, judged))
        return candidates


@dataclass(frozen=True)
class _Sums:
    """Products of powers to choose from."""

    powers: tuple[tuple[int, ...], ...]
    names: tuple[str, ...]
    signed: bool
    max_size: int

    def fitted(self, x: Floats, y: Floats) -> list[Candidate]:
        most = max(1, min(_MOST_TERMS, len(np.unique(x, axis=0)) // _ROWS_PER_TERM))
        candidates: list[Candidate] = []
        for one in best_sums(x, y, self.powers, most, self.signed):
            terms = {
                tuple(sorted((name, power) for name, power in zip(self.names, powers, strict=True) if power)): factor
                for powers, factor in zip(one.powers, one.factors, strict=True)
            }
            expression = sum_of_products(terms)
            if not candidates or size(expression) <= self.max_size:
                candidates.append(Candidate(expression, one.criterion))
        return candidates


@dataclass(frozen=True)
class _Both:
    first: Proposals
    second: Proposals

    def fitted(self, x: Floats, y: Floats) -> list[Candidate]:
        return self.first.fitted(x, y) + self.second.fitted(x, y)


def _further(
    forms: Sequence[Expression], names: Sequence[str], known: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Products of powers in the forms that are not among the known ones: those found most often."""
    counts: Counter[tuple[int, ...]] = Counter()
    for form in forms:
        for term in polynomial(form) or {}:
            exponents = dict(term)
            counts[tuple(exponents.get(name, 0) for name in names)] += 1
    new = [powers for powers in counts if powers not in set(known) and sum(powers) <= _DEGREE]
    return sorted(new, key=lambda powers: (-counts[powers], sum(powers), powers))[:_MOST_PROPOSED]
