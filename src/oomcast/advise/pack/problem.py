"""What is to be packed: jobs (`Item`), cards (`Card`), and the risk that no card may exceed (`Problem`).

Cards are written as people write them: `4xa100-40gb,2xrtx-3090`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...devices import Gpu, find_gpu
from ...errors import BadInput
from .demand import Demand, Sum, overflow_risk

__all__ = ["Card", "Item", "Placement", "Problem", "card_risk", "check_risk", "parse_cards"]

_MOST_CARDS = 4096


@dataclass(frozen=True)
class Card:
    """One GPU of a machine or cluster."""

    name: str
    """`a100-40gb/0`: its kind, and its number among those."""
    gpu: Gpu

    @property
    def kind(self) -> str:
        return self.gpu.name

    @property
    def usable(self) -> int:
        return self.gpu.usable_memory


def parse_cards(text: str) -> tuple[Card, ...]:
    """All cards, kinds in the order they are written; a kind that is written twice adds up."""
    counts: dict[str, int] = {}
    gpus: dict[str, Gpu] = {}
    for part in (piece.strip() for piece in text.split(",")):
        if not part:
            raise BadInput(f"cannot read {text!r} as GPUs; write them like 4xa100-40gb,2xrtx-3090.")
        count, name = _counted(part)
        gpu = find_gpu(name)
        gpus[gpu.name] = gpu
        counts[gpu.name] = counts.get(gpu.name, 0) + count
    if sum(counts.values()) > _MOST_CARDS:
        raise BadInput(f"{sum(counts.values())} GPUs are more than the {_MOST_CARDS} that can be packed at once.")
    return tuple(Card(f"{name}/{number}", gpus[name]) for name in counts for number in range(counts[name]))


def _counted(part: str) -> tuple[int, str]:
    match = re.fullmatch(r"([+-]?[0-9]+)\s*[x×*]\s*(.+)", part)
    if match is None:
        return 1, part
    count = int(match.group(1)[:9])
    if count < 1:
        raise BadInput(f"{part!r} asks for {count} GPUs; give at least one.")
    return count, match.group(2)


_MOST_SUMS = 20_000

Placement = tuple[int | None, ...]
"""For every item the number of its card, or None."""


@dataclass(frozen=True)
class Item:
    """A job with what it may hold on each kind of card that it may run on."""

    name: str
    group: str
    demands: Mapping[str, Demand] = field(hash=False)


def check_risk(risk: float) -> float:
    if not 0 < risk < 1:
        raise BadInput(f"the risk must lie between 0 and 1, such as 0.05, not {risk:g}.")
    return risk


def card_risk(members: Sequence[tuple[str, Demand]], capacity: int) -> float:
    """That those jobs, each with its group, together hold more than the card has.

    Jobs of one group err together, groups independently. It never falls when a job is added.
    """
    if not members:
        return 0.0
    groups: dict[str, list[Demand]] = {}
    for group, demand in members:
        groups.setdefault(group, []).append(demand)
    if len(members) == 1 and members[0][1].lone_risk is not None:
        return members[0][1].lone_risk
    return overflow_risk([first.with_others(rest) for first, *rest in groups.values()], capacity)


def _by_size(items: Sequence[Item]) -> dict[int, int]:
    """The rank of every item, the largest first."""
    sizes = [max((demand.total for demand in item.demands.values()), default=0) for item in items]
    order = sorted(range(len(items)), key=lambda number: (-sizes[number], number))
    return {number: rank for rank, number in enumerate(order)}


class Problem:
    """What is to be packed; remembers the risks that were asked for."""

    def __init__(self, items: Sequence[Item], cards: Sequence[Card], risk: float, most: int | None = None) -> None:
        if not cards:
            raise BadInput("there is no GPU to place jobs on.")
        if most is not None and most < 1:
            raise BadInput(f"at most {most} jobs per GPU places none; give at least 1.")
        self.items = tuple(items)
        self.cards = tuple(cards)
        self.bound = check_risk(risk)
        self.most = most
        self._usable = {card.kind: card.usable for card in cards}
        self._rank = _by_size(self.items)
        self._known: dict[tuple[str, frozenset[int]], float] = {}
        self._sums: dict[tuple[str, tuple[int, ...]], Sum] = {}

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._usable)

    def usable(self, kind: str) -> int:
        return self._usable[kind]

    def risk(self, members: Iterable[int], kind: str) -> float:
        """Of those items together on a card of that kind; 1 where one of them may not run there."""
        chosen = frozenset(members)
        known = self._known.get((kind, chosen))
        if known is None:
            known = self._computed(sorted(chosen, key=self._rank.__getitem__), kind)
            self._known[kind, chosen] = known
        return known

    def fits(self, members: Iterable[int], kind: str) -> bool:
        chosen = frozenset(members)
        return (self.most is None or len(chosen) <= self.most) and self.risk(chosen, kind) <= self.bound

    def members(self, placement: Placement) -> list[list[int]]:
        """The items on each card."""
        found: list[list[int]] = [[] for _ in self.cards]
        for item, card in enumerate(placement):
            if card is not None:
                found[card].append(item)
        return found

    def holds(self, placement: Placement) -> bool:
        """Whether every card keeps to the bounds."""
        return all(
            self.fits(members, card.kind)
            for members, card in zip(self.members(placement), self.cards, strict=True)
            if members
        )

    def _computed(self, chosen: Sequence[int], kind: str) -> float:
        members = [(self.items[number].group, self.items[number].demands.get(kind)) for number in chosen]
        known = [(group, demand) for group, demand in members if demand is not None]
        if len(known) < len(members):
            return 1.0
        if len(known) > 1 and len({group for group, _ in known}) == len(known):
            return self._sum(tuple(chosen), kind).risk
        return card_risk(known, self.usable(kind))

    def _sum(self, chosen: tuple[int, ...], kind: str) -> Sum:
        """Of jobs that err independently; the sums of fewer of them are at hand, since cards are filled one by one."""
        if not chosen:
            return Sum.empty(self.usable(kind))
        known = self._sums.get((kind, chosen))
        if known is None:
            known = self._sum(chosen[:-1], kind).plus(self.items[chosen[-1]].demands[kind])
            if len(self._sums) >= _MOST_SUMS:
                self._sums.clear()
            self._sums[kind, chosen] = known
        return known
