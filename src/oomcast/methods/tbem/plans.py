"""Which cases to run: an orthogonal array, every combination, blocks of these, a random sample, or one at a time where
it tells most."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import BadInput
from .arrays import MAX_RUNS, OrthogonalArray, find_array, strength_of
from .factors import Case, Factor, Value, combinations

__all__ = [
    "BAYESIAN_START",
    "METHODS",
    "Balance",
    "Cost",
    "Method",
    "Plan",
    "blocks_plan",
    "full_plan",
    "make_plan",
    "next_case",
    "orthogonal_plan",
    "other_cases",
    "random_plan",
    "repaired",
    "spread_plan",
]

Method = Literal["orthogonal", "full", "blocks", "random", "adaptive", "bayesian"]
METHODS: tuple[Method, ...] = ("orthogonal", "full", "blocks", "random", "adaptive", "bayesian")
Uncertainty = Callable[[Sequence[Case]], Sequence[float]]

_MOST_CANDIDATES = 4096
BAYESIAN_START = 3
"""Cases before the Bayesian model chooses: it needs no more to say where it knows least."""


@dataclass(frozen=True)
class Cost:
    """What a plan will take, told before anything runs."""

    cases: int
    repetitions: int
    combinations: int
    """What every combination of the levels would take."""
    seconds: float | None
    """None where no case has been timed yet."""

    @property
    def runs(self) -> int:
        return self.cases * self.repetitions


@dataclass(frozen=True)
class Plan:
    """Cases to run, in order, and where they come from."""

    method: Method
    factors: tuple[Factor, ...]
    cases: tuple[dict[str, Value], ...]
    array: OrthogonalArray | None = None
    to_come: int = 0
    """Cases that an adaptive plan will choose when those before them have run."""

    def cost(self, repetitions: int = 1, seconds_per_case: float | None = None) -> Cost:
        cases = len(self.cases) + self.to_come
        seconds = None if seconds_per_case is None else cases * repetitions * seconds_per_case
        return Cost(cases, repetitions, combinations(self.factors), seconds)


def make_plan(
    method: Method,
    factors: Sequence[Factor],
    *,
    strength: int = 2,
    runs: int = 0,
    seed: int = 0,
    blocks: Sequence[Sequence[Factor]] = (),
) -> Plan:
    """The plan of a method; `runs` counts for random and adaptive plans, `strength` for orthogonal ones, `blocks` for
    those of blocks."""
    if not factors:
        raise BadInput("a plan needs at least one factor.")
    if method == "orthogonal":
        return orthogonal_plan(factors, strength)
    if method == "full":
        return full_plan(factors)
    if method == "blocks":
        return blocks_plan(factors, blocks)
    if runs < 1:
        raise BadInput(f"a plan of method {method!r} needs the number of runs, at least 1.")
    if method == "random":
        return random_plan(factors, runs, seed)
    if method == "bayesian":
        return replace(spread_plan(factors, runs, seed, BAYESIAN_START), method=method)
    return spread_plan(factors, runs, seed)


def orthogonal_plan(factors: Sequence[Factor], strength: int = 2) -> Plan:
    """The rows of the smallest orthogonal array known."""
    array = find_array([len(factor.levels) for factor in factors], strength)
    cases = (dict(zip(_names(factors), _levels(factors, row), strict=True)) for row in array.rows)
    # An array may hold a row twice; a run tells nothing new the second time.
    return Plan("orthogonal", tuple(factors), tuple(_each_once(cases, factors)), array)


def full_plan(factors: Sequence[Factor]) -> Plan:
    """Every combination of levels."""
    if combinations(factors) > MAX_RUNS:
        raise BadInput(
            f"every combination of these levels is {combinations(factors)} cases, more than {MAX_RUNS}; "
            "take an orthogonal plan, or fewer factors or levels."
        )
    return Plan("full", tuple(factors), tuple(_grid(factors)))


def blocks_plan(factors: Sequence[Factor], blocks: Sequence[Sequence[Factor]]) -> Plan:
    """Every combination within each block, in the order of the blocks: a grid without the corner that does not fit.

    A block names levels of some factors; of those that it does not name it has all levels.
    """
    if not blocks:
        raise BadInput("a plan of blocks needs at least one block.")
    known = {factor.name: factor for factor in factors}
    grids = []
    for block in blocks:
        for factor in block:
            if factor.name not in known or any(level not in known[factor.name].levels for level in factor.levels):
                raise BadInput(f"a block has levels of {factor.name!r} that no factor of the campaign has.")
        named = {factor.name: factor for factor in block}
        grids.append(full_plan([named.get(factor.name, factor) for factor in factors]).cases)
    cases = tuple(_each_once(itertools.chain.from_iterable(grids), factors))
    if len(cases) > MAX_RUNS:
        raise BadInput(f"these blocks are {len(cases)} cases; a plan has at most {MAX_RUNS}.")
    return Plan("blocks", tuple(factors), cases)


def random_plan(factors: Sequence[Factor], runs: int, seed: int = 0) -> Plan:
    """Different combinations drawn at random; the same seed draws the same."""
    _check_enough(factors, runs)
    drawn = itertools.islice(other_cases(factors, (), seed), runs)
    return Plan("random", tuple(factors), tuple(drawn))


def spread_plan(factors: Sequence[Factor], runs: int, seed: int = 0, start: int | None = None) -> Plan:
    """The start of an adaptive plan: cases as far from each other as they can be; the rest is chosen one by one.

    The start has two cases for each factor and one more, enough to fit a first polynomial to, unless `start` says so.
    """
    _check_enough(factors, runs)
    start = min(runs, start or 1 + 2 * len(factors))
    chosen: list[dict[str, Value]] = []
    while len(chosen) < start:
        chosen.append(next_case(factors, chosen, seed=seed))
    return Plan("adaptive", tuple(factors), tuple(chosen), to_come=runs - start)


def next_case(
    factors: Sequence[Factor],
    done: Sequence[Case],
    uncertainty: Uncertainty | None = None,
    *,
    seed: int = 0,
) -> dict[str, Value]:
    """The combination not done yet where the fitted model is least sure.

    `uncertainty` gives a figure for each candidate: the prediction's variance. Without it, and among candidates that it
    calls equal, the one farthest from all that is done. The candidates are all combinations, or a random sample of them
    where there are more than can be looked at.
    """
    candidates = list(itertools.islice(other_cases(factors, done, seed), _MOST_CANDIDATES))
    if not candidates:
        raise BadInput("every combination of the levels has been run; there is no next case.")
    places = _places(factors, candidates)
    near = _places(factors, done)
    # With nothing done, start in the corner of the smallest levels.
    distance = -np.abs(places).sum(axis=1) if not len(near) else np.array([_nearest(place, near) for place in places])
    unsure = np.zeros(len(candidates)) if uncertainty is None else np.asarray(uncertainty(candidates), dtype=np.float64)
    if len(unsure) != len(candidates) or np.isnan(unsure).any():
        raise ValueError("the uncertainty must be one number for each candidate")
    order = [tuple(row) for row in places]
    best = max(range(len(candidates)), key=lambda i: (unsure[i], distance[i], [-x for x in order[i]]))
    return candidates[best]


@dataclass(frozen=True)
class Balance:
    """How even the rows of a plan are after rejected ones were replaced."""

    rejected: int
    replaced: int
    strength: int
    """In any so many columns, every combination of levels that is left still appears equally often."""
    wanted_strength: int
    pairs: int
    """Pairs of levels of two factors that the rows hold at least once."""
    possible_pairs: int
    """Those that some configuration that can be built holds, as far as was looked."""
    all_pairs: int
    without: tuple[str, ...] = ()
    """Levels that no configuration can have, as `edge=16`; the array is made of the others."""
    proportional: bool = False
    """Every pair of levels is met as often as its two levels make one expect: effects of factors do not mix, even where
    levels are not met equally often."""

    def __str__(self) -> str:
        words = [f"{self.rejected} rows of the array cannot be built; {self.replaced} others took their place"]
        if self.without:
            words[0] += f" (nothing can be built with {', '.join(self.without)}: the array is made of the other levels)"
        words.append(f"strength {self.strength} of {self.wanted_strength} is left")
        if self.proportional and self.strength < self.wanted_strength:
            words[-1] += ", but all pairs are met in proportion, so that the effects of factors do not mix"
        words.append(f"{self.pairs} of {self.possible_pairs} pairs of levels that can be are met")
        return "; ".join(words)


_MOST_REPLACEMENTS = 600
_MOST_TRIED = 5000


def repaired(
    plan: Plan, kept: Sequence[dict[str, Value]], passes: Callable[[Case], bool]
) -> tuple[list[dict[str, Value]], Balance]:
    """The rows that passed, filled up to the plan's number by others, so that pairs of levels are met evenly.

    Levels that no configuration can have are left out first: the array of the other levels may need no repair. Each
    replacement is the one whose levels, alone and in pairs, were met least; then replacements are exchanged.
    """
    rejected, factors, first = len(plan.cases) - len(kept), plan.factors, list(kept)
    tried = itertools.islice(other_cases(factors, plan.cases, 0), _MOST_TRIED)
    pool = list(itertools.islice((case for case in tried if passes(case)), _MOST_REPLACEMENTS))
    possible = _possible(factors, [*kept, *pool])
    without = tuple(
        f"{factor.name}={level}"
        for factor, left in zip(factors, possible, strict=True)
        for level in factor.levels
        if not any(_same_level(level, other) for other in left.levels)
    )
    if without and plan.array is not None and all(factor.levels for factor in possible):
        plan = _array_of(possible, plan)
        kept = [case for case in plan.cases if passes(case)]
        pool = [case for case in pool if case not in kept]
    rows = [_numbers(factors, case) for case in kept]
    candidates = [_numbers(factors, case) for case in pool]
    chosen: list[int] = []
    for _ in range(min(len(plan.cases) - len(kept), len(pool))):
        chosen.append(_most_even([*rows, *(candidates[i] for i in chosen)], candidates, chosen))
    for place in [*range(len(chosen))] * 2:
        rest = chosen[:place] + chosen[place + 1 :]
        chosen[place] = _most_even([*rows, *(candidates[i] for i in rest)], candidates, rest)
    whole = [*kept, *(pool[i] for i in chosen)]
    wanted = plan.array.strength if plan.array is not None else 1
    levels = [len(factor.levels) for factor in plan.factors]
    balance = Balance(
        rejected=rejected,
        replaced=len(chosen) if not without else len(whole) - sum(case in whole for case in first),
        strength=strength_of([_numbers(plan.factors, case) for case in whole], levels, wanted) if whole else 0,
        wanted_strength=wanted,
        pairs=len(_pairs(_numbers(factors, case) for case in whole)),
        possible_pairs=len(_pairs(_numbers(factors, case) for case in (*whole, *pool))),
        all_pairs=sum(len(a.levels) * len(b.levels) for a, b in itertools.combinations(factors, 2)),
        without=without,
        proportional=_proportional([_numbers(factors, case) for case in whole]),
    )
    return whole, balance


def _array_of(possible: Sequence[Factor], plan: Plan) -> Plan:
    """An array of the levels that are left, with no more runs than before.

    Where the smallest array of them is larger (three levels beside four need 48 runs instead of 16), the rows stay and
    a level that is left takes the place of each that is not: Taguchi's dummy levels.
    """
    assert plan.array is not None
    anew = orthogonal_plan(possible, plan.array.strength)
    if len(anew.cases) <= len(plan.cases):
        return anew
    taken = {factor.name: itertools.cycle(factor.levels) for factor in possible}
    instead = {
        (factor.name, number): level
        if any(_same_level(level, one) for one in left.levels)
        else next(taken[factor.name])
        for factor, left in zip(plan.factors, possible, strict=True)
        for number, level in enumerate(factor.levels)
    }
    rows = [
        {factor.name: instead[factor.name, level] for factor, level in zip(plan.factors, row, strict=True)}
        for row in plan.array.rows
    ]
    return replace(plan, factors=tuple(possible), cases=tuple(_each_once(rows, possible)))


def _proportional(rows: Sequence[tuple[int, ...]]) -> bool:
    for i, j in itertools.combinations(range(len(rows[0]) if rows else 0), 2):
        first, second, both = (
            Counter(r[i] for r in rows),
            Counter(r[j] for r in rows),
            Counter((r[i], r[j]) for r in rows),
        )
        if any(both[a, b] * len(rows) != first[a] * second[b] for a in first for b in second):
            return False
    return True


def _possible(factors: Sequence[Factor], cases: Sequence[Case]) -> list[Factor]:
    """The factors with the levels that some case has; with all of them where there is no case."""
    if not cases:
        return list(factors)
    return [
        Factor(factor.name, tuple(x for x in factor.levels if any(_same_level(x, case[factor.name]) for case in cases)))
        for factor in factors
    ]


def _same_level(left: Value, right: Value) -> bool:
    return left == right and isinstance(left, bool) == isinstance(right, bool)


def _numbers(factors: Sequence[Factor], case: Case) -> tuple[int, ...]:
    return tuple(
        next(
            i
            for i, level in enumerate(factor.levels)
            if _identity({"": level}, [""]) == _identity({"": case[factor.name]}, [""])
        )
        for factor in factors
    )


def _pairs(rows: Iterable[tuple[int, ...]]) -> set[tuple[int, int, int, int]]:
    return {(i, j, row[i], row[j]) for row in rows for i, j in itertools.combinations(range(len(row)), 2)}


def _most_even(rows: Sequence[tuple[int, ...]], candidates: Sequence[tuple[int, ...]], taken: Sequence[int]) -> int:
    """The candidate whose levels, alone and in pairs, were met least by the rows; single levels count first."""
    singles: dict[tuple[int, int], int] = {}
    pairs: dict[tuple[int, int, int, int], int] = {}
    for row in rows:
        for column, level in enumerate(row):
            singles[column, level] = singles.get((column, level), 0) + 1
        for pair in _pairs([row]):
            pairs[pair] = pairs.get(pair, 0) + 1

    def crowded(i: int) -> tuple[int, int]:
        row = candidates[i]
        alone = sum(singles.get((column, level), 0) for column, level in enumerate(row))
        return sum(pairs.get(pair, 0) for pair in _pairs([row])) + alone, i

    return min((i for i in range(len(candidates)) if i not in taken), key=crowded)


def other_cases(factors: Sequence[Factor], taken: Sequence[Case], seed: int) -> Iterator[dict[str, Value]]:
    """All other combinations of the levels, each once, in an order drawn from the seed."""
    names = _names(factors)
    seen = {_identity(case, names) for case in taken}
    total = combinations(factors)
    rng = random.Random(seed)
    numbers = rng.sample(range(total), min(total, MAX_RUNS))
    for number in numbers:
        case = _numbered(factors, number)
        if _identity(case, names) not in seen:
            yield case


def _numbered(factors: Sequence[Factor], number: int) -> dict[str, Value]:
    """The combination of that number: the last factor changes fastest."""
    levels: list[Value] = []
    for factor in reversed(factors):
        number, level = divmod(number, len(factor.levels))
        levels.append(factor.levels[level])
    return dict(zip(_names(factors), reversed(levels), strict=True))


def _grid(factors: Sequence[Factor]) -> Iterator[dict[str, Value]]:
    return (_numbered(factors, number) for number in range(combinations(factors)))


def _check_enough(factors: Sequence[Factor], runs: int) -> None:
    total = combinations(factors)
    if runs > total:
        raise BadInput(f"{runs} runs were asked for, but the levels have only {total} combinations.")
    if runs > MAX_RUNS:
        raise BadInput(f"{runs} runs were asked for; a plan has at most {MAX_RUNS}.")


def _each_once(cases: Iterable[dict[str, Value]], factors: Sequence[Factor]) -> Iterator[dict[str, Value]]:
    names = _names(factors)
    seen = set()
    for case in cases:
        if (identity := _identity(case, names)) not in seen:
            seen.add(identity)
            yield case


def _names(factors: Sequence[Factor]) -> tuple[str, ...]:
    return tuple(factor.name for factor in factors)


def _levels(factors: Sequence[Factor], row: Sequence[int]) -> list[Value]:
    return [factor.levels[level] for factor, level in zip(factors, row, strict=True)]


def _identity(case: Case, names: Sequence[str]) -> tuple[tuple[bool, Value], ...]:
    return tuple((isinstance(case[name], bool), case[name]) for name in names)


def _places(factors: Sequence[Factor], cases: Sequence[Case]) -> NDArray[np.float64]:
    """Each case as a point of the unit cube: the rank of its level, words in the order given."""
    places = np.zeros((len(cases), len(factors)))
    for column, factor in enumerate(factors):
        levels = sorted(factor.levels, key=float) if factor.is_numeric else list(factor.levels)
        for row, case in enumerate(cases):
            value = case[factor.name]
            if value in levels:
                places[row, column] = levels.index(value) / max(1, len(levels) - 1)
            elif factor.is_numeric:
                inside = np.interp(float(value), np.array([float(x) for x in levels]), np.linspace(0, 1, len(levels)))
                places[row, column] = float(inside)
    return places


def _nearest(place: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """The distance to the nearest other, a little by the mean distance, so that ties go to open space."""
    distances = np.abs(others - place).sum(axis=1)
    return float(distances.min() + 1e-3 * distances.mean())
