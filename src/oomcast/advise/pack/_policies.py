"""How a scheduler decides whether a job may join those on a card, and which card it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import UnknownName
from ._cards import Card
from ._problem import Problem

__all__ = ["POLICIES", "Policy", "find_policies"]

Admits = Callable[[Problem, Sequence[int], int, Card], bool]


@dataclass(frozen=True)
class Policy:
    name: str
    admits: Admits | None
    """Whether a job may join the others on a card, by its estimate; None: every job has a card to itself."""
    tightest: bool = False
    """Of the cards that admit it, the one with the least room left; else the first."""


def _by_point(problem: Problem, members: Sequence[int], job: int, card: Card) -> bool:
    """Where the point estimates add up to no more than the card has."""
    return load(problem, [*members, job], card.kind) <= card.usable and _not_too_many(problem, members)


def _by_risk(problem: Problem, members: Sequence[int], job: int, card: Card) -> bool:
    """Where the risk of the sum stays below the bound."""
    return _by_point(problem, members, job, card) and problem.fits([*members, job], card.kind)


def _not_too_many(problem: Problem, members: Sequence[int]) -> bool:
    return problem.most is None or len(members) < problem.most


def load(problem: Problem, members: Sequence[int], kind: str) -> int:
    """The point estimates of those jobs."""
    return sum(problem.items[one].demands[kind].total for one in members)


POLICIES: Mapping[str, Policy] = {
    one.name: one
    for one in (
        Policy("exclusive", None),
        Policy("first-fit", _by_point),
        Policy("best-fit", _by_point, tightest=True),
        Policy("interval", _by_risk, tightest=True),
    )
}


def find_policies(names: Sequence[str]) -> tuple[Policy, ...]:
    """Those, or all."""
    for name in names:
        if name not in POLICIES:
            raise UnknownName("policy", name, POLICIES, f"There are {', '.join(POLICIES)}.")
    return tuple(POLICIES[name] for name in names or POLICIES)
