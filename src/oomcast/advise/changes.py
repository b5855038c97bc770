"""Which changes make a job fit: each is captured and estimated whole, and so is each combination that is proposed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture import capture, expecting
from ..errors import BadInput, OomcastError, TookTooLong
from ..estimation import Estimate, estimate_rank, estimate_trace, kinds_of_ranks, target_of
from ..spec import DESCRIPTIONS, JobKind, Spec, takes_options
from ..trace import Trace
from ..units import format_bytes, parse_bytes
from .confidence import check_confidence, fits
from .job_file import optimizer_of, patch_for
from .recomputation import maybe_never_called, worth_recomputing
from .remedies import BY_MODULE, Remedy, remedies_for

__all__ = ["Advice", "Change", "what_to_change"]

_MOST_TOGETHER = 3
_TRIED = 6
"""Combinations of one size that are captured at most."""
_ENOUGH = 3
"""Combinations that reach the goal after which no more are looked for."""
_OVERLAP = 0.5
"""Two remedies rarely save more than their sum; a combination whose sum is this share of what is missing is tried."""


@dataclass(frozen=True)
class Change:
    """One remedy, or several together, with the full estimate of the job so changed."""

    remedies: tuple[Remedy, ...]
    estimate: Estimate
    saving: int
    """How much less the job needs (`least_capacity`): the difference of two estimates; negative if it needs more."""
    saving_total: int
    """The same for `device_total`."""
    reaches: bool
    """Whether the goal is reached."""
    patch: str
    """A unified diff of the job file, where the change can be made there; else empty."""

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(remedy.key for remedy in self.remedies)


@dataclass(frozen=True)
class Advice:
    """`single` is ranked by saving; `combined` has the fewest changes that reach the goal, the gentlest first."""

    job: str
    device: str
    goal: str
    confidence: float
    base: Estimate
    reached: bool
    """Whether nothing needs to be changed."""
    single: tuple[Change, ...]
    combined: tuple[Change, ...]
    failed: tuple[tuple[str, str], ...]
    """Remedies that the job does not take, with the reason."""
    captures: int
    seconds: float

    @property
    def reachable(self) -> bool:
        return self.reached or bool(self.combined)


@takes_options(*DESCRIPTIONS)
def what_to_change(
    job: Any,
    *,
    device: str,
    batch_size: int | None = None,
    goal: str = "fits",
    confidence: float = 0.95,
    only: Sequence[str] | None = None,
    most_together: int = _MOST_TOGETHER,
    **options: Any,
) -> Advice:
    """What to change so that the job fits, or holds at most so many bytes on the device (`goal="20GiB"`).

    Every remedy is captured and estimated as `oomcast.estimate` would; its saving is the difference of two estimates.
    `only` names the remedies to consider. The other options are those of `oomcast.estimate`.
    """
    check_confidence(confidence)
    started = time.perf_counter()
    spec = Spec.read_sized(job, batch_size, device=device, **options)
    reach = _Goal(goal, confidence)
    search = _Search(spec, reach)
    base_trace, base = search.base()
    context = base.breakdown.get("context", 0)
    if reach.most is not None and reach.most <= context:
        raise BadInput(
            f"the goal of {format_bytes(reach.most)} is below what the CUDA context alone takes, "
            f"{format_bytes(context)}; no change of the job can reach it."
        )
    by_module = not spec.workload.checkpointing and (only is None or BY_MODULE in only)
    never_called = search.never_called(base_trace) if by_module else ()
    remedies = remedies_for(spec.workload, search.target, base_trace, optimizer_of(spec.workload), never_called)
    if only is not None:
        unknown = [key for key in only if key not in {remedy.key for remedy in remedies}]
        if unknown:
            raise BadInput(
                f"{unknown[0]!r} is no remedy for this job; there are {', '.join(remedy.key for remedy in remedies)}."
            )
        remedies = tuple(remedy for remedy in remedies if remedy.key in only)
    single = search.try_all([(remedy,) for remedy in remedies])
    combined = () if reach.reached(base) else search.combinations(single, most_together)
    return Advice(
        job=spec.workload.job.reference,
        device=search.target.gpu.name,
        goal=goal,
        confidence=confidence,
        base=base,
        reached=reach.reached(base),
        single=tuple(sorted(single, key=lambda change: -reach.of(change))),
        combined=combined,
        failed=tuple(search.failed.items()),
        captures=search.captures,
        seconds=round(time.perf_counter() - started, 3),
    )


class _Goal:
    def __init__(self, goal: str, confidence: float) -> None:
        self.most = None if goal == "fits" else parse_bytes(goal)
        self.confidence = confidence

    def reached(self, estimate: Estimate) -> bool:
        return fits(estimate, self.confidence) if self.most is None else estimate.device_total <= self.most

    def of(self, change: Change) -> int:
        """The saving that counts."""
        return change.saving if self.most is None else change.saving_total

    def missing(self, base: Estimate) -> int:
        return base.least_capacity - base.device_usable if self.most is None else base.device_total - self.most


class _Search:
    def __init__(self, spec: Spec, goal: _Goal) -> None:
        self.spec = spec
        self.target = target_of(spec)
        self.goal = goal
        self.captures = 0
        self.failed: dict[str, str] = {}
        self._traces: dict[str, Trace] = {}
        self._base: Estimate | None = None

    def base(self) -> tuple[Trace, Estimate]:
        trace, self._base = self._estimated(self.spec)
        return trace, self._base

    def _estimated(self, spec: Spec, remedies: Sequence[Remedy] = ()) -> tuple[Trace, Estimate]:
        """As `oomcast.estimate` would: of several GPUs the kind of rank that needs most, its Trace beside it."""
        if spec.place.machines.world_size == 1:
            trace = _by_formula(self._capture(spec), remedies)
            return trace, estimate_trace(trace, target_of(spec))
        traces = [_by_formula(self._capture(one), remedies) for one in _of_each_rank(spec)]
        return max(((t, estimate_rank(spec, t)) for t in traces), key=lambda pair: pair[1].device_total)

    def try_all(self, sets: Iterable[tuple[Remedy, ...]]) -> list[Change]:
        changes, sets = [], list(sets)
        with expecting(spec for remedies in sets for spec in self._needed_first(remedies)):
            for remedies in sets:
                try:
                    changes.append(self._try(remedies))
                except OomcastError as error:
                    self.failed[" + ".join(remedy.key for remedy in remedies)] = str(error)
        return changes

    def _needed_first(self, remedies: tuple[Remedy, ...]) -> list[Spec]:
        """What trying them captures whatever comes of it; nothing where they do not go together."""
        try:
            specs = _of_each_rank(_applied(self.spec, self._first_form(remedies)))
        except OomcastError:
            return []
        return [spec for spec in specs if _key(spec) not in self._traces]

    def never_called(self, base: Trace) -> set[str]:
        """Modules that hold others but are never called, so that they cannot be checkpointed: the job tells."""
        called: set[str] = set()
        never: set[str] = set()
        while unsure := maybe_never_called(base, worth_recomputing(base, never)) - called:
            if self._takes(unsure):
                called |= unsure
                continue
            for name in sorted(unsure):
                (called if len(unsure) > 1 and self._takes({name}) else never).add(name)
        return never

    def _takes(self, modules: set[str]) -> bool:
        workload = dataclasses.replace(self.spec.workload, checkpointing=tuple(sorted(modules)), steps=1)
        try:
            self._capture(self.spec.with_workload(workload))
        except TookTooLong:
            raise
        except BadInput:
            return False
        return True

    def combinations(self, single: Sequence[Change], most: int) -> tuple[Change, ...]:
        """The fewest changes that reach the goal; of as many, those that cost least, then those that save most."""
        assert self._base is not None
        useful = [change for change in single if self.goal.of(change) > 0]
        for count in range(1, most + 1):
            if count == 1:
                reaching = [change for change in useful if change.reaches]
            else:
                reaching = self._together(useful, count)
            if reaching:
                return tuple(sorted(reaching, key=self._gentleness))
        return ()

    def _together(self, useful: Sequence[Change], count: int) -> list[Change]:
        assert self._base is not None
        missing = self.goal.missing(self._base)
        sets = [
            members
            for members in itertools.combinations(useful, count)
            if len({change.remedies[0].part for change in members}) == count
            and sum(map(self.goal.of, members)) >= _OVERLAP * missing
        ]
        sets.sort(key=lambda members: -sum(map(self.goal.of, members)))
        reaching: list[Change] = []
        for members in sets[:_TRIED]:
            tried = self.try_all([tuple(change.remedies[0] for change in members)])
            reaching += [change for change in tried if change.reaches]
            if len(reaching) >= _ENOUGH:
                break
        return reaching

    def _gentleness(self, change: Change) -> tuple[int, float, int]:
        harm, again = sum(remedy.harm for remedy in change.remedies), sum(remedy.again for remedy in change.remedies)
        return harm, again, -self.goal.of(change)

    def _try(self, remedies: tuple[Remedy, ...]) -> Change:
        """A remedy with several forms is taken in the mildest that reaches the goal: the one before it was captured."""
        place = next((n for n, remedy in enumerate(remedies) if remedy.versions), None)
        if place is None or self._is_reached:
            return self._captured(self._first_form(remedies))
        versions = remedies[place].versions

        def at(number: int) -> Change:
            return self._captured(_in_form(remedies, place, number))

        low, high, found = -1, len(versions) - 1, at(len(versions) - 1)
        while found.reaches and high - low > 1:
            tried = at((low + high) // 2)
            if tried.reaches:
                high, found = (low + high) // 2, tried
            else:
                low = (low + high) // 2
        return found

    def _first_form(self, remedies: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
        """A remedy with several forms in the one that is tried first: the strongest, while the goal is not reached."""
        place = next((n for n, remedy in enumerate(remedies) if remedy.versions), None)
        return remedies if place is None else _in_form(remedies, place, 0 if self._is_reached else -1)

    @property
    def _is_reached(self) -> bool:
        assert self._base is not None
        return self.goal.reached(self._base)

    def _captured(self, remedies: tuple[Remedy, ...]) -> Change:
        assert self._base is not None
        trace, estimate = self._estimated(_applied(self.spec, remedies), remedies)
        is_file = self.spec.workload.job.kind is JobKind.FILE
        return Change(
            remedies=remedies,
            estimate=estimate,
            saving=self._base.least_capacity - estimate.least_capacity,
            saving_total=self._base.device_total - estimate.device_total,
            reaches=self.goal.reached(estimate),
            patch=patch_for(self.spec.workload.job.name, remedies, trace) if is_file else "",
        )

    def _capture(self, spec: Spec) -> Trace:
        """Remedies of the allocator alone change no Trace: the same workload is captured once."""
        key = _key(spec)
        if key not in self._traces:
            self.captures += 1
            self._traces[key] = capture(spec)
        return self._traces[key]


def _key(spec: Spec) -> str:
    return json.dumps([spec.workload.as_dict(), spec.place.rank], sort_keys=True)


def _of_each_rank(spec: Spec) -> list[Spec]:
    """The question itself on one GPU, else one for each kind of rank."""
    if spec.place.machines.world_size == 1:
        return [spec]
    return [spec.with_place(rank=kind.rank) for kind in kinds_of_ranks(spec)]


def _applied(spec: Spec, remedies: Iterable[Remedy]) -> Spec:
    for remedy in remedies:
        spec = remedy.apply(spec)
    return spec


def _in_form(remedies: tuple[Remedy, ...], place: int, number: int) -> tuple[Remedy, ...]:
    versions = remedies[place].versions
    form = dataclasses.replace(versions[number], versions=versions)
    return (*remedies[:place], form, *remedies[place + 1 :])


def _by_formula(trace: Trace, remedies: Sequence[Remedy]) -> Trace:
    for remedy in remedies:
        if remedy.formula is not None:
            trace = remedy.formula(trace)
    return trace
