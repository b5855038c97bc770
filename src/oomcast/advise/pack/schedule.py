"""What a scheduler would have made of a list of jobs: they arrive, are placed by a policy, and hold what they must.

A policy decides, from the estimates, whether a job may join those on a card, and which card it takes (`POLICIES`).

The rules, the same for every policy and estimator:

- Jobs are taken in the order of their arrival; one that must wait does not hold up those behind it.
- A job holds its peak from its start to its end. Where the truths on a card come to more than it has, the newcomer is
  the one that dies: after `crash_after` seconds, which are lost. It is then queued again, for a card of its own.
- A job that its estimate lets fit on no empty card gets a card of its own as well. It claims the card with the fewest
  jobs, which takes no others until it is free.
- A job that dies on a card of its own is tried on larger kinds; where there is none, it has failed.
- With k jobs on a card each runs at 1 / (1 + `slowdown`·(k - 1)) of its speed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ...errors import BadInput, UnknownName
from ...units import check_size
from .problem import Card, Problem

__all__ = ["POLICIES", "Policy", "Replayed", "Timing", "find_policies", "replay"]

Admits = Callable[[Problem, Sequence[int], int, Card], bool]


@dataclass(frozen=True)
class Policy:
    name: str
    admits: Admits | None
    """Whether a job may join the others on a card, by its estimate; None: no job shares a card."""
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
    return sum(problem.items[member].demands[kind].total for member in members)


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
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


_DONE = 1e-6
"""Seconds of work that count as none: what rounding leaves."""
_LONGEST = 1e9
"""Seconds, some thirty years: sums of longer times would lose the seconds."""


@dataclass(frozen=True)
class Timing:
    """What happens to a job, whatever its estimate says. Seconds, bytes."""

    arrival: float
    duration: float
    """How long it runs where no other job shares its card."""
    truth: int
    """What it really holds at its peak."""

    def __post_init__(self) -> None:
        for name, value in (("arrival", self.arrival), ("duration", self.duration)):
            if not 0 <= value <= _LONGEST:
                raise BadInput(f"the {name} of a job must lie between 0 and {_LONGEST:g} seconds, not {value:g}.")
        check_size(self.truth)


@dataclass(frozen=True)
class Replayed:
    """What a policy made of a list of jobs."""

    policy: str
    jobs: int
    failed: tuple[str, ...]
    """Jobs that no card holds."""
    ooms: int
    """Runs that died of memory."""
    makespan: float
    """From the first arrival to the last end, seconds."""
    mean_wait: float
    """From a job's arrival to the start of the run that it ended well in."""
    mean_turnaround: float
    """From its arrival to its end."""
    memory_used: float
    """The share of all cards' memory, over the makespan, that runs which ended well truly held."""
    cards_busy: float
    """The share of all cards' time that something ran."""
    lost_seconds: float
    """Of runs that died."""


@dataclass
class _Run:
    job: int
    started: float
    left: float
    """Seconds of work."""
    dies: float | None
    """When, if it does."""


@dataclass
class _Place:
    card: Card
    runs: list[_Run] = field(default_factory=list)
    claimed_by: int | None = None
    alone: bool = False
    """Whether the job that runs here shares the card with no other."""

    @property
    def members(self) -> list[int]:
        return [run.job for run in self.runs]


def replay(
    problem: Problem,
    timings: Sequence[Timing],
    policy: Policy,
    *,
    slowdown: float = 0.0,
    crash_after: float = 60.0,
) -> Replayed:
    """`problem` has the jobs with their estimates, the cards, and the bound on the risk."""
    if len(timings) != len(problem.items):
        raise ValueError(f"{len(timings)} timings for {len(problem.items)} jobs")
    for name, value in (("slowdown", slowdown), ("time until a crash", crash_after)):
        if not 0 <= value <= _LONGEST:
            raise BadInput(f"the {name} must not be negative nor above {_LONGEST:g}, not {value:g}.")
    return _Day(problem, timings, policy, slowdown, crash_after).run()


class _Day:
    def __init__(
        self, problem: Problem, timings: Sequence[Timing], policy: Policy, slowdown: float, crash_after: float
    ) -> None:
        self.problem, self.timings, self.policy = problem, timings, policy
        self.slowdown, self.crash_after = slowdown, crash_after
        self.places = [_Place(card) for card in problem.cards]
        self.arrivals = sorted(range(len(timings)), key=lambda job: (timings[job].arrival, job))
        self.queue: list[int] = []
        self.needs_own_card: set[int] = set()
        self.too_small: dict[int, int] = {}
        """The largest usable memory on which a job has died alone."""
        self.failed: list[int] = []
        self.now = timings[self.arrivals[0]].arrival if timings else 0.0
        self.ooms, self.lost, self.waits, self.turnarounds = 0, 0.0, 0.0, 0.0
        self.held, self.busy, self.ended = 0.0, 0.0, 0

    def run(self) -> Replayed:
        began = self.now
        waiting = iter(self.arrivals)
        upcoming = next(waiting, None)
        while True:
            while upcoming is not None and self.timings[upcoming].arrival <= self.now + _DONE:
                self._arrive(upcoming)
                upcoming = next(waiting, None)
            then = min((self._next_end(place) for place in self.places), default=math.inf)
            if upcoming is not None:
                then = min(then, self.timings[upcoming].arrival)
            if math.isinf(then):
                break
            self._advance(then)
            for place in self.places:
                if self._end_runs(place):
                    self._fill(place)
        if self.queue:
            raise AssertionError("jobs wait for cards that nothing holds")
        return self._summary(self.now - began)

    def _arrive(self, job: int) -> None:
        if self.policy.admits is None or not self._fits_some_empty_card(job):
            self.needs_own_card.add(job)
        self.queue.append(job)
        self._start_somewhere(job)

    def _fits_some_empty_card(self, job: int) -> bool:
        admits = self.policy.admits
        kinds = {card.kind: card for card in self.problem.cards if card.kind in self.problem.items[job].demands}
        return admits is not None and any(admits(self.problem, (), job, card) for card in kinds.values())

    def _start_somewhere(self, job: int) -> bool:
        """On any card that has room now; a job that wants one for itself may also claim one."""
        if job in self.needs_own_card:
            open_places = [place for place in self.places if self._could_have(job, place)]
            if not open_places:
                if not any(self._may_use(job, place) for place in self.places):
                    self.queue.remove(job)
                    self.failed.append(job)
                return False
            free = [place for place in open_places if not place.runs]
            if free:
                self._start(job, free[0], alone=True)
                return True
            if self.policy.admits is not None and self._claim_of(job) is None:
                min(open_places, key=lambda place: len(place.runs)).claimed_by = job
            return False
        fitting = [place for place in self.places if self._admits(place, job)]
        if not fitting:
            return False
        self._start(job, self._chosen(fitting, job), alone=False)
        return True

    def _chosen(self, fitting: Sequence[_Place], job: int) -> _Place:
        if not self.policy.tightest:
            return fitting[0]
        return min(
            fitting,
            key=lambda place: place.card.usable - load(self.problem, [*place.members, job], place.card.kind),
        )

    def _may_use(self, job: int, place: _Place) -> bool:
        return place.card.kind in self.problem.items[job].demands and place.card.usable > self.too_small.get(job, 0)

    def _could_have(self, job: int, place: _Place) -> bool:
        return place.claimed_by in (None, job) and not place.alone and self._may_use(job, place)

    def _admits(self, place: _Place, job: int) -> bool:
        admits = self.policy.admits
        if admits is None or place.alone or place.claimed_by is not None:
            return False
        if place.card.kind not in self.problem.items[job].demands:
            return False
        return admits(self.problem, place.members, job, place.card)

    def _fill(self, place: _Place) -> None:
        """After something ended there: by those that wait, the others having had no room before."""
        if place.claimed_by is not None:
            if not place.runs:
                job, place.claimed_by = place.claimed_by, None
                self._start(job, place, alone=True)
            return
        for job in tuple(self.queue):
            if job not in self.needs_own_card:
                if self._admits(place, job):
                    self._start(job, place, alone=False)
            elif self._could_have(job, place):
                given_up = self._claim_of(job)
                if place.runs and given_up is not None:
                    continue
                if place.runs:
                    place.claimed_by = job
                    return
                self._start(job, place, alone=True)
                if given_up is not None:
                    given_up.claimed_by = None
                    self._fill(given_up)
                return

    def _claim_of(self, job: int) -> _Place | None:
        return next((place for place in self.places if place.claimed_by == job), None)

    def _start(self, job: int, place: _Place, *, alone: bool) -> None:
        self.queue.remove(job)
        held = sum(self.timings[run.job].truth for run in place.runs if run.dies is None)
        bursts = held + self.timings[job].truth > place.card.usable
        duration = self.timings[job].duration
        dies = self.now + min(self.crash_after, duration) if bursts else None
        place.runs.append(_Run(job, self.now, duration, dies))
        place.alone = alone

    def _speed(self, place: _Place) -> float:
        return 1 / (1 + self.slowdown * (len(place.runs) - 1))

    def _next_end(self, place: _Place) -> float:
        speed = self._speed(place) if place.runs else 1.0
        return min(
            (self.now + run.left / speed if run.dies is None else run.dies for run in place.runs), default=math.inf
        )

    def _advance(self, then: float) -> None:
        passed = then - self.now
        for place in self.places:
            if place.runs:
                self.busy += passed
                speed = self._speed(place)
                for run in place.runs:
                    if run.dies is None:
                        run.left -= passed * speed
                        self.held += passed * self.timings[run.job].truth
        self.now = then

    def _end_runs(self, place: _Place) -> bool:
        over = [run for run in place.runs if (run.left <= _DONE if run.dies is None else run.dies <= self.now + _DONE)]
        for run in over:
            place.runs.remove(run)
            if run.dies is None:
                timing = self.timings[run.job]
                self.waits += run.started - timing.arrival
                self.turnarounds += self.now - timing.arrival
                self.ended += 1
            else:
                self._died(run, place)
            if not place.runs:
                place.alone = False
        return bool(over)

    def _died(self, run: _Run, place: _Place) -> None:
        self.ooms += 1
        self.lost += self.now - run.started
        if place.alone:
            self.too_small[run.job] = max(self.too_small.get(run.job, 0), place.card.usable)
        self.needs_own_card.add(run.job)
        order = self.timings[run.job].arrival, run.job
        behind = sum((self.timings[job].arrival, job) < order for job in self.queue)
        self.queue.insert(behind, run.job)
        place.alone = False
        self._start_somewhere(run.job)

    def _summary(self, makespan: float) -> Replayed:
        capacity = sum(card.usable for card in self.problem.cards) * makespan
        return Replayed(
            policy=self.policy.name,
            jobs=len(self.timings),
            failed=tuple(self.problem.items[job].name for job in sorted(self.failed)),
            ooms=self.ooms,
            makespan=makespan,
            mean_wait=self.waits / max(self.ended, 1),
            mean_turnaround=self.turnarounds / max(self.ended, 1),
            memory_used=self.held / capacity if capacity else 0.0,
            cards_busy=self.busy / (len(self.places) * makespan) if makespan else 0.0,
            lost_seconds=self.lost,
        )
