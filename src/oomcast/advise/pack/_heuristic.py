"""A good placement at once: best fit, the largest job first; and the levelling of one that is there."""

from __future__ import annotations

from collections.abc import Sequence

from ._problem import Placement, Problem

__all__ = ["best_fit", "levelled", "used_cards"]

_MOST_MOVES = 200
_WORTH = 2e-3
"""Of a card: what a move must at least relieve."""


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
        found = _decreasing(problem, order[left_out:])
        count = sum(card is not None for card in found)
        if count > placed:
            best, placed = found, count
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
    kept = [one for one in members if one != leaves]
    return kept if comes is None else [*kept, comes]


def _load(problem: Problem, members: Sequence[int], kind: str) -> float:
    """The share of the card that is expected to be in use."""
    return sum(_share(problem, one, kind) for one in members)


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
