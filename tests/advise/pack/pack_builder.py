"""Packing problems for tests, small and large."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

from oomcast.advise.pack import Card, Demand, Item, Problem, parse_cards
from oomcast.estimation import load_interval
from oomcast.units import GiB


def demand(gib: float) -> Demand:
    """With oomcast's own interval."""
    return Demand(round(gib * GiB), load_interval().curve)


def sure(gib: float) -> Demand:
    """An estimate that is never wrong."""
    size = round(gib * GiB)
    return Demand.from_bounds(size, size, size)


def items(sizes: Sequence[float], cards: Sequence[Card], group: str = "") -> list[Item]:
    kinds = {card.kind for card in cards}
    return [
        Item(f"job{number}", group or f"job{number}", dict.fromkeys(kinds, demand(gib)))
        for number, gib in enumerate(sizes)
    ]


def random_problem(seed: int, jobs: int, low: float, high: float, gpus: str, risk: float = 0.05) -> Problem:
    draw, cards = random.Random(seed), parse_cards(gpus)
    return Problem(items([draw.uniform(low, high) for _ in range(jobs)], cards), cards, risk)


def fewest_cards_by_trying(problem: Problem) -> int | None:
    """The least number of cards that holds all items, every placement tried; one kind of card."""
    kind = problem.cards[0].kind
    best: int | None = None

    def place(item: int, filled: list[list[int]]) -> None:
        nonlocal best
        if best is not None and len(filled) >= best:
            return
        if item == len(problem.items):
            best = len(filled)
            return
        for members in filled:
            if problem.fits([*members, item], kind):
                members.append(item)
                place(item + 1, filled)
                members.pop()
        if len(filled) < len(problem.cards) and problem.fits([item], kind):
            place(item + 1, [*filled, [item]])

    place(0, [])
    return best


def most_jobs_by_trying(problem: Problem) -> int:
    """The largest number of items that one kind of card holds, every choice tried."""
    for count in range(len(problem.items), 0, -1):
        for chosen in itertools.combinations(range(len(problem.items)), count):
            part = Problem([problem.items[one] for one in chosen], problem.cards, problem.bound, problem.most)
            if fewest_cards_by_trying(part) is not None:
                return count
    return 0
