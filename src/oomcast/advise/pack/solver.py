"""Where jobs go: a good placement at once (`best_fit`), a proven one by CP-SAT (`solve`), an even one (`levelled`).

Best fit places the largest job first. The solver then looks for fewer cards, or more jobs, as a whole-number program
that knows the risk only by linear statements (`bounds`); the exact risk is checked on every card that it proposes. A
card that is filled too far gives a new statement, which the program then keeps to; what it proves before that is
proven, since no statement excludes a placement that holds.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BadInput
from .bounds import (
    Cut,
    Weights,
    cardinality_cuts,
    cover_cut,
    fewest_cards_needed,
    most_jobs_possible,
    relaxation,
    surrogate,
)
from .problem import Placement, Problem

__all__ = ["Solved", "best_fit", "levelled", "solve", "used_cards"]

_SEED = 8
_ROUND = 0.5
"""Of the solver's own deterministic seconds: the same on every machine."""
_MOST_ROUNDS = 12
_LEAST_SECONDS = 0.05
_ROUNDING = 1e-6
_MOST_MOVES = 200
_WORTH = 2e-3
"""A move must lower the load of the fuller card by at least this share of its memory."""


@dataclass(frozen=True)
class Solved:
    placement: Placement
    fewest_cards: int
    """Proven: no placement of as many jobs uses fewer."""
    most_jobs: int
    """Proven: no placement has more."""
    rounds: int
    cuts: int
    stopped: bool
    """Whether it ended by the clock; another run may then find another answer."""


def solve(problem: Problem, seconds: float = 10.0, effort: float = 1.0) -> Solved:
    """As many jobs as can be placed, on the fewest cards.

    `effort` is in the solver's deterministic seconds and ends the search at the same place every time; `seconds` is
    the clock's, for machines that are much slower.
    """
    search = _Search(problem, time.monotonic() + seconds, effort)
    return search.fewest_cards() if search.all_placed else search.most_jobs()


class _Search:
    def __init__(self, problem: Problem, deadline: float, effort: float) -> None:
        self.problem = problem
        self.best = best_fit(problem)
        self.all_placed = all(card is not None for card in self.best)
        self._deadline, self._effort = deadline, effort
        self._loose = [weights for kind in problem.kinds for weights in relaxation(problem, kind)]
        self._cuts: list[Cut] = [cut for kind in problem.kinds for cut in cardinality_cuts(problem, kind)]
        self._rounds, self._stopped = 0, False

    def fewest_cards(self) -> Solved:
        least = fewest_cards_needed(self.problem, self._loose, self._cuts)
        for tight in (True, False):
            while used_cards(self.best) > least and self._may_go_on():
                limit = used_cards(self.best) - 1
                answer = self._ask(limit, self._weights(tight), all_placed=True)
                if not tight:
                    least = max(least, min(answer.bound, limit + 1))
                if answer.placement is None:
                    break
                self._learn(answer.placement)
        return self._solved(least, len(self.problem.items))

    def most_jobs(self) -> Solved:
        most, cards = most_jobs_possible(self.problem, self._loose), len(self.problem.cards)
        for tight in (True, False):
            while self._placed() < most and self._may_go_on():
                answer = self._ask(cards, self._weights(tight), all_placed=False)
                if not tight:
                    most = min(most, max(answer.bound, self._placed()))
                if answer.placement is None:
                    break
                self._learn(answer.placement)
        return self._solved(1, most)

    def _placed(self) -> int:
        return sum(card is not None for card in self.best)

    def _weights(self, tight: bool) -> list[Weights]:
        if not tight:
            return self._loose
        return [surrogate(self.problem, self.best, kind) for kind in self.problem.kinds]

    def _may_go_on(self) -> bool:
        if time.monotonic() > self._deadline - _LEAST_SECONDS:
            self._stopped = True
        return not self._stopped and self._effort > 0 and self._rounds < _MOST_ROUNDS

    def _learn(self, placement: Placement) -> None:
        """Keep it if it holds; else never propose such cards again, and keep what is left of it if that is better."""
        problem = self.problem
        repaired = list(placement)
        for number, members in enumerate(problem.members(placement)):
            kind = problem.cards[number].kind
            while members and not problem.fits(members, kind):
                cut = cover_cut(problem, members, kind)
                if cut not in self._cuts:
                    self._cuts.append(cut)
                leaves = max(
                    set(cut.items) & set(members), key=lambda member: problem.items[member].demands[kind].total
                )
                members = [member for member in members if member != leaves]
                repaired[leaves] = None
        self._place_again(repaired)
        candidate = tuple(repaired)
        placed = sum(card is not None for card in candidate)
        if (placed, -used_cards(candidate)) > (self._placed(), -used_cards(self.best)):
            self.best = candidate

    def _place_again(self, places: list[int | None]) -> None:
        """What had to leave its card goes where it still fits."""
        problem = self.problem
        members = problem.members(tuple(places))
        for item in [number for number, card in enumerate(places) if card is None]:
            for number, there in enumerate(members):
                if problem.fits([*there, item], problem.cards[number].kind):
                    places[item] = number
                    there.append(item)
                    break

    def _ask(self, limit: int, weights: Sequence[Weights], *, all_placed: bool) -> _Answer:
        self._rounds += 1
        budget = min(_ROUND, self._effort)
        answer = _solved_program(
            self.problem, weights, self._cuts, limit, all_placed, self.best, budget, self._deadline - time.monotonic()
        )
        self._effort -= max(answer.effort, 0.01)
        return answer

    def _solved(self, fewest: int, most: int) -> Solved:
        return Solved(self.best, fewest, most, self._rounds, len(self._cuts), self._stopped)


@dataclass(frozen=True)
class _Answer:
    placement: Placement | None
    bound: int
    """On the cards, or on the jobs; past the limit that was asked for where nothing can be."""
    effort: float


def _solved_program(
    problem: Problem,
    weights: Sequence[Weights],
    cuts: Sequence[Cut],
    limit: int,
    all_placed: bool,
    hint: Placement,
    effort: float,
    seconds: float,
) -> _Answer:
    cp_model = _cp_model()
    model = cp_model.CpModel()
    numbers = _open_cards(problem, limit)
    used = {number: model.new_bool_var("") for number in numbers} if len(numbers) > limit else {}
    for before, after in zip(used, list(used)[1:], strict=False):
        if problem.cards[before].kind == problem.cards[after].kind:
            model.add_implication(used[after], used[before])  # cards of a kind are alike: from the first on
    on = {
        (item, number): model.new_bool_var("")
        for item, one in enumerate(problem.items)
        for number in numbers
        if problem.cards[number].kind in one.demands
    }
    for item in range(len(problem.items)):
        places = [on[item, number] for number in numbers if (item, number) in on]
        (model.add_exactly_one if all_placed else model.add_at_most_one)(places)
    for number in numbers:
        kind = problem.cards[number].kind
        here = {item: on[item, number] for item in range(len(problem.items)) if (item, number) in on}
        for weight in weights:
            if weight.kind == kind:
                sizes = [weight.of[item] or 0 for item in here]
                total = cp_model.LinearExpr.weighted_sum(list(here.values()), sizes)
                model.add(total <= (weight.limit * used[number] if used else weight.limit))
        for cut in cuts:
            if cut.kind == kind:
                model.add(cp_model.LinearExpr.sum([here[item] for item in cut.items if item in here]) <= cut.most)
        if problem.most is not None:
            model.add(cp_model.LinearExpr.sum(list(here.values())) <= problem.most)
    if used:
        model.add(cp_model.LinearExpr.sum(list(used.values())) <= limit)
    if not all_placed:
        model.maximize(cp_model.LinearExpr.sum(list(on.values())))
        for (item, number), variable in on.items():
            model.add_hint(variable, hint[item] == number)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    # It would leave SIGINT to the system's default: from then on Ctrl-C would kill the process without an exception.
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = effort
    solver.parameters.max_time_in_seconds = max(seconds, _LEAST_SECONDS)
    status = solver.solve(model)
    took = float(solver.response_proto.deterministic_time)
    if status == cp_model.INFEASIBLE:
        return _Answer(None, limit + 1 if all_placed else 0, took)
    bound = 0 if all_placed else math.floor(solver.best_objective_bound + _ROUNDING)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return _Answer(None, bound, took)
    places_found: list[int | None] = [None] * len(problem.items)
    for (item, number), variable in on.items():
        if solver.boolean_value(variable):
            places_found[item] = number
    return _Answer(tuple(places_found), bound, took)


def _open_cards(problem: Problem, limit: int) -> list[int]:
    """Of each kind as many as may be used; where there is one kind, these are the cards."""
    counts: dict[str, int] = {}
    numbers = []
    for number, card in enumerate(problem.cards):
        counts[card.kind] = counts.get(card.kind, 0) + 1
        if counts[card.kind] <= limit:
            numbers.append(number)
    return numbers


def _cp_model() -> Any:
    try:
        return importlib.import_module("ortools.sat.python.cp_model")
    except ModuleNotFoundError as error:
        raise BadInput(
            f"packing needs the package {error.name}; install it with: pip install 'oomcast[packing]'"
        ) from None


def best_fit(problem: Problem) -> Placement:
    """All items if it can, else as many as it finds: then the largest are left out, which make the most room."""
    order = sorted(range(len(problem.items)), key=lambda item: (-_size(problem, item), item))
    whole = _decreasing(problem, order)
    placed = sum(card is not None for card in whole)
    if placed == len(order):
        return whole
    # The fewest large ones to leave out; that fewer jobs are never harder to place is not sure, but mostly so.
    low, high, best = 1, len(order) - placed, whole
    while low < high:
        left_out = (low + high) // 2
        placement = _decreasing(problem, order[left_out:])
        count = sum(card is not None for card in placement)
        if count > placed:
            best, placed = placement, count
        if count == len(order) - left_out:
            high = left_out
        else:
            low = left_out + 1
    return best


def used_cards(placement: Placement) -> int:
    return len({card for card in placement if card is not None})


def levelled(problem: Problem, placement: Placement) -> Placement:
    """The same cards, with the fullest relieved: jobs move, or change places, while that lowers the higher load."""
    places = list(placement)
    loads = [
        _load(problem, members, card.kind)
        for members, card in zip(problem.members(placement), problem.cards, strict=True)
    ]
    used = [card for card, load in enumerate(loads) if load > 0]
    if len(used) < 2:
        return placement
    for _ in range(_MOST_MOVES):
        found = _relief(problem, places, loads, used)
        if found is None:
            break
        for item, card in found:
            places[item] = card
        members = problem.members(tuple(places))
        for card in used:
            loads[card] = _load(problem, members[card], problem.cards[card].kind)
    return tuple(places)


def _relief(
    problem: Problem, places: Sequence[int | None], loads: Sequence[float], used: Sequence[int]
) -> list[tuple[int, int]] | None:
    members = problem.members(tuple(places))
    fullest = max(used, key=lambda card: (loads[card], -card))
    from_kind = problem.cards[fullest].kind
    options = []
    for card in used:
        kind = problem.cards[card].kind
        for item in members[fullest] if card != fullest else ():
            for other in (None, *members[card]):
                if kind not in problem.items[item].demands or (other is None and len(members[fullest]) == 1):
                    continue  # the second: it would only change which card is used
                if other is not None and from_kind not in problem.items[other].demands:
                    continue
                there = loads[card] + _share(problem, item, kind) - _share(problem, other, kind)
                here = loads[fullest] - _share(problem, item, from_kind) + _share(problem, other, from_kind)
                if max(there, here) < loads[fullest] - _WORTH:
                    options.append((max(there, here), card, item, -1 if other is None else other))
    for _, card, item, number in sorted(options):
        other = None if number < 0 else number
        there_members = _exchanged(members[card], other, item)
        here_members = _exchanged(members[fullest], item, other)
        if problem.fits(there_members, problem.cards[card].kind) and problem.fits(here_members, from_kind):
            return [(item, card)] if other is None else [(item, card), (other, fullest)]
    return None


def _exchanged(members: Sequence[int], leaves: int | None, comes: int | None) -> list[int]:
    kept = [member for member in members if member != leaves]
    return kept if comes is None else [*kept, comes]


def _load(problem: Problem, members: Sequence[int], kind: str) -> float:
    """The share of the card that is expected to be in use."""
    return sum(_share(problem, member, kind) for member in members)


def _share(problem: Problem, item: int | None, kind: str) -> float:
    return 0.0 if item is None else problem.items[item].demands[kind].mean / problem.usable(kind)


def _size(problem: Problem, item: int) -> float:
    """The share of a card that it takes, where it takes most."""
    demands = problem.items[item].demands
    return max((demand.mean / problem.usable(kind) for kind, demand in demands.items()), default=0.0)


def _decreasing(problem: Problem, order: Sequence[int]) -> Placement:
    places: list[int | None] = [None] * len(problem.items)
    members: list[list[int]] = [[] for _ in problem.cards]
    loads = [0.0] * len(problem.cards)
    roomiest = sorted(range(len(problem.cards)), key=lambda card: (-problem.cards[card].usable, card))
    for item in order:
        open_first = sorted(
            (card for card in roomiest if members[card]),
            key=lambda card: (_room_left(problem, card, loads[card]), card),
        )
        closed: dict[str, int] = {}
        for card in roomiest:
            if not members[card]:
                closed.setdefault(problem.cards[card].kind, card)  # one empty card of a kind is as good as another
        for card in (*open_first, *closed.values()):
            kind = problem.cards[card].kind
            demand = problem.items[item].demands.get(kind)
            if demand is None or (members[card] and loads[card] + demand.total > problem.usable(kind)):
                continue
            if problem.fits([*members[card], item], kind):
                members[card].append(item)
                loads[card] += demand.total
                places[item] = card
                break
    return tuple(places)


def _room_left(problem: Problem, card: int, load: float) -> float:
    return problem.cards[card].usable - load
