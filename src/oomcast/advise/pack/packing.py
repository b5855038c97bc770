"""Which jobs can run together on which card, with a risk of running out of memory below a bound.

Packing takes items: each job estimated for each kind of card, or with the estimates that the list brings. A replay
takes timings as well: when jobs come, how long they run, and what they really hold.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...errors import BadInput, OomcastError
from ...estimation import Estimate, estimate
from ...units import format_bytes
from .demand import Demand
from .job_list import GIVEN, JobEntry
from .problem import Card, Item, Problem
from .schedule import Timing
from .solver import levelled, solve, used_cards

__all__ = [
    "LeftOut",
    "PackedCard",
    "PackedJob",
    "Packing",
    "estimators_of",
    "given_demand",
    "items_of",
    "pack_jobs",
    "timings_of",
]


@dataclass(frozen=True)
class PackedJob:
    name: str
    device_total: int
    """The point estimate on that card, its CUDA context included; bytes."""


@dataclass(frozen=True)
class PackedCard:
    card: Card
    jobs: tuple[PackedJob, ...]
    """The largest first."""
    risk: float
    """The probability that together they hold more than the card has."""

    @property
    def device_total(self) -> int:
        return sum(job.device_total for job in self.jobs)


@dataclass(frozen=True)
class LeftOut:
    name: str
    reason: str
    for_room: bool
    """Whether it could run if no other job shared its card."""


@dataclass(frozen=True)
class Packing:
    cards: tuple[PackedCard, ...]
    """All of them, also those that stay free."""
    left_out: tuple[LeftOut, ...]
    bound: float
    """On every card's risk."""
    known_to: float
    """The least risk that the intervals tell of; a bound below it rests on how their tails are extrapolated."""
    fewest_cards: int
    """Proven: as many jobs cannot be placed on fewer."""
    most_jobs: int
    """Proven: not more jobs can be placed."""
    rounds: int
    cuts: int
    stopped: bool
    """Whether the clock ended the search: another run may find another answer."""
    seconds: float

    @property
    def placed(self) -> int:
        return sum(len(card.jobs) for card in self.cards)

    @property
    def used(self) -> int:
        return sum(bool(card.jobs) for card in self.cards)

    @property
    def crowded(self) -> bool:
        """Whether jobs are left out for want of room: then it is their number that was asked for, not the cards'."""
        return any(refused.for_room for refused in self.left_out)

    @property
    def gap(self) -> float:
        """How far the answer can at most be from the best: in jobs where there is not room for all, else in cards."""
        if self.crowded:
            return (self.most_jobs - self.placed) / self.most_jobs
        return (self.used - self.fewest_cards) / self.used if self.used else 0.0


def pack_jobs(
    items: Sequence[Item],
    cards: Sequence[Card],
    *,
    risk: float = 0.05,
    max_per_gpu: int | None = None,
    seconds: float = 10.0,
) -> Packing:
    """As many jobs as fit, on the fewest cards, these as evenly filled as can be; the same answer every time."""
    started = time.monotonic()
    whole = Problem(items, cards, risk, max_per_gpu)
    known_to = round(max((demand.tail for item in items for demand in item.demands.values()), default=0.0), 6)
    hopeless = {number: reason for number in range(len(items)) if (reason := _why_hopeless(whole, number))}
    tried = [number for number in range(len(items)) if number not in hopeless]
    left_out = [LeftOut(items[number].name, reason, False) for number, reason in hopeless.items()]
    if not tried:
        empty = tuple(PackedCard(card, (), 0.0) for card in cards)
        return Packing(empty, tuple(left_out), risk, known_to, 0, 0, 0, 0, False, time.monotonic() - started)
    problem = Problem([items[number] for number in tried], cards, risk, max_per_gpu)
    solved = solve(problem, seconds)
    placement = levelled(problem, solved.placement)
    if not problem.holds(placement) or used_cards(placement) > used_cards(solved.placement):
        raise AssertionError("the placement breaks its bounds")
    packed = []
    for members, card in zip(problem.members(placement), cards, strict=True):
        jobs = [
            PackedJob(problem.items[member].name, problem.items[member].demands[card.kind].total) for member in members
        ]
        jobs.sort(key=lambda job: (-job.device_total, job.name))
        packed.append(PackedCard(card, tuple(jobs), problem.risk(members, card.kind) if members else 0.0))
    left_out += [
        LeftOut(problem.items[one].name, f"no card has room for it beside the others ({_needs(problem, one)})", True)
        for one, place in enumerate(placement)
        if place is None
    ]
    return Packing(
        cards=tuple(packed),
        left_out=tuple(left_out),
        bound=risk,
        known_to=known_to,
        fewest_cards=solved.fewest_cards,
        most_jobs=solved.most_jobs,
        rounds=solved.rounds,
        cuts=solved.cuts,
        stopped=solved.stopped,
        seconds=round(time.monotonic() - started, 3),
    )


def _why_hopeless(problem: Problem, number: int) -> str:
    demands = problem.items[number].demands
    if any(problem.risk([number], kind) <= problem.bound for kind in demands):
        return ""
    kind = min(demands, key=lambda candidate: problem.risk([number], candidate))
    return (
        f"even with a card to itself it runs out of memory with {problem.risk([number], kind):.0%} on {kind}, "
        f"above the bound of {problem.bound:g}: it needs {format_bytes(demands[kind].total)} "
        f"of {format_bytes(problem.usable(kind))} usable"
    )


def _needs(problem: Problem, number: int) -> str:
    return ", ".join(
        f"{format_bytes(demand.total)} on {kind}" for kind, demand in problem.items[number].demands.items()
    )


def items_of(
    entries: Sequence[JobEntry],
    cards: Iterable[Card],
    *,
    estimator: str | None = None,
    on_estimate: Callable[[str, str], None] = lambda job, kind: None,
) -> tuple[Item, ...]:
    """`estimator` says which one estimates jobs, or whose given estimate counts where a job has several."""
    kinds = tuple(dict.fromkeys(card.kind for card in cards))
    known: dict[tuple[object, ...], Estimate] = {}
    items = []
    for entry in entries:
        if entry.device is not None and entry.device not in kinds:
            raise BadInput(
                f"job {entry.name!r} may run on {entry.device} only, which is not among the GPUs: {', '.join(kinds)}."
            )
        demands = {}
        for kind in kinds if entry.device is None else (entry.device,):
            if entry.job is None:
                demands[kind] = given_demand(entry, estimator)
                continue
            options = {**entry.options, **({"estimator": estimator} if estimator else {})}
            key = (entry.job, kind, tuple(sorted(options.items())))
            if key not in known:
                on_estimate(entry.name, kind)
                known[key] = _estimated(entry, options, kind)
            demands[kind] = Demand.from_estimate(known[key])
        items.append(Item(entry.name, entry.group, demands))
    return tuple(items)


def given_demand(entry: JobEntry, estimator: str | None) -> Demand:
    """Of a job whose estimates stand in the list."""
    if estimator is not None and estimator in entry.given:
        return entry.given[estimator]
    if estimator is None and (GIVEN in entry.given or len(entry.given) == 1):
        return entry.given.get(GIVEN) or next(iter(entry.given.values()))
    named = ", ".join(name for name in entry.given if name != GIVEN) or "none that has a name"
    if estimator is None:
        raise BadInput(f"job {entry.name!r} has several estimates; choose one with --estimator: {named}.")
    raise BadInput(f"job {entry.name!r} has no estimate by {estimator!r}; it has {named}.")


def _estimated(entry: JobEntry, options: dict[str, object], kind: str) -> Estimate:
    try:
        return estimate(entry.job, device=kind, **options)  # type: ignore[arg-type]
    except OomcastError as error:
        error.args = (f"job {entry.name!r}: {error}",)
        raise


def timings_of(
    entries: Sequence[JobEntry], items: Sequence[Item], cards: Sequence[Card], draw_truth: int | None = None
) -> tuple[Timing, ...]:
    """`draw_truth` is a seed: what the list does not say is then drawn from each job's own interval."""
    draw = random.Random(draw_truth)
    timings = []
    for entry, item in zip(entries, items, strict=True):
        if entry.duration is None:
            raise BadInput(f"job {entry.name!r} has no duration; a replay needs the seconds that it runs.")
        chance = draw.random()
        truth = entry.truth
        if truth is None and draw_truth is None:
            raise BadInput(
                f"job {entry.name!r} has no truth; a replay needs what it really holds. Add truth = '9.3GiB', "
                "or draw the truths from the intervals with --draw-truth SEED."
            )
        if truth is None:
            kind = next(card.kind for card in cards if card.kind in item.demands)
            truth = item.demands[kind].drawn(chance)
        timings.append(Timing(entry.arrival or 0.0, entry.duration, truth))
    return tuple(timings)


def estimators_of(entries: Sequence[JobEntry]) -> tuple[str, ...]:
    """Whose estimates all jobs bring; empty where some job is to be estimated, or has one without a name."""
    shared = list(entries[0].given) if entries else []
    for entry in entries:
        shared = [name for name in shared if name in entry.given]
    return tuple(shared)
