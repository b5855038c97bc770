"""`oomcast fit`: the largest batch size, or value of another parameter, with which a job fits on a GPU.

The job is captured at a few values. Between them its Trace is interpolated (`TraceFamily`) and simulated, which costs
no capture, so that a search by halving is cheap. The answer, and the next value that does not fit, are captured
themselves.
"""

from __future__ import annotations

import bisect
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..capture import capture
from ..errors import BadInput, TookTooLong
from ..estimation import Estimate, target_of
from ..spec import DESCRIPTIONS, Job, Spec, Workload, takes_options
from ..trace import Trace
from .confidence import ConfidentTarget, check_confidence, smallest_gpu
from .parameters import Parameter, find_parameter
from .trace_family import TraceFamily

__all__ = ["Check", "CurvePoint", "Fit", "Floor", "fit", "search_largest"]

MOST_CAPTURES = 4
_WITHOUT_FAMILY = 24
"""Captures where the job's structure changes with the parameter, or where it refuses values: by halving then."""
_LIKE = 0.9
_BEYOND = 16
"""So many values in a row must not fit: workspaces and fragmentation do not only grow, a larger one may fit again."""
_CURVE_POINTS = 12
_NO_END = 1 << 24

Capture = Callable[[Workload], Trace]


@dataclass(frozen=True)
class Check:
    """One capture: what it showed, and what the family of Traces had said of it before."""

    value: int
    fits: bool
    needed: int
    """`Estimate.least_capacity`; 0 where the job refused the value."""
    p_oom: float
    said_to_fit: bool | None
    """None for the first capture: nothing was known."""
    same_order: bool | None
    """Whether its events stand in the order of the nearest capture before it."""
    refused: str = ""
    """Why the job does not take this value."""


@dataclass(frozen=True)
class CurvePoint:
    """Memory on a device without end, the context included."""

    value: int
    allocated: int
    reserved: int
    low: int
    high: int
    """The interval around `reserved`."""
    captured: bool


@dataclass(frozen=True)
class Floor:
    """Why nothing fits: what even the smallest value holds."""

    parameters: int
    gradients: int
    optimizer_state: int
    context: int
    needed: int
    smallest_gpu: str | None

    @property
    def model(self) -> int:
        """What no smaller batch takes away."""
        return self.parameters + self.gradients + self.optimizer_state + self.context


@dataclass(frozen=True)
class Fit:
    """All sizes are bytes."""

    job: str
    parameter: str
    value: int | None
    """The largest that fits, itself captured; None where even the smallest does not."""
    following: int | None
    """The next larger value, which does not fit; None where a limit, not memory, ends the search."""
    bound: str
    """What stops the value from growing: `memory`, `at_most`, or `refused` by the job."""
    confidence: float
    device: str
    device_usable: int
    limit: int
    """The most that a job may need on this device to fit at the confidence."""
    estimate: Estimate
    """At the value; at the smallest where none fits."""
    checks: tuple[Check, ...]
    """The captures, in the order they were made."""
    unverified: tuple[str, ...]
    """What the answer rests on without a capture; empty where it and the next value were captured."""
    curve: tuple[CurvePoint, ...]
    floor: Floor | None
    seconds: float

    @property
    def captures(self) -> int:
        return len(self.checks)

    @property
    def fits(self) -> bool:
        return self.value is not None


@takes_options(*DESCRIPTIONS)
def fit(
    job: Any,
    *,
    device: str,
    parameter: str = "batch-size",
    confidence: float = 0.95,
    at_least: int | None = None,
    at_most: int | None = None,
    step: int | None = None,
    among: Sequence[int] | None = None,
    most_captures: int = MOST_CAPTURES,
    curve: bool = True,
    **options: Any,
) -> Fit:
    """The largest value of a numeric parameter with which the job fits on the device.

    `parameter` is `batch-size`, `seq-len`, `input-size` (the side of an image), or the name of a number that the job
    file defines (`WIDTH = 512`). `job` may also be a function of one number that returns a job. Values are multiples of
    `step` (1; 8 for `seq-len`, 32 for `input-size`) from `at_least` to `at_most`, or those of `among`. It fits where
    P(OOM) is at most 1 - `confidence` and the simulated run ends well. The other options are those of
    `oomcast.estimate`. The answer was captured itself; what else was not is in `unverified`.
    """
    check_confidence(confidence)
    if most_captures < 2:
        raise BadInput(f"at least 2 captures are needed, not {most_captures}.")
    is_factory = callable(job) and not hasattr(job, "model")
    spec = Spec.read(job(1) if is_factory else job, device=device, **options)
    workload = spec.workload
    if is_factory:
        wanted = Parameter(parameter, lambda n: _with_job(workload, job(n)), start=step or 1, step=step or 1)
    else:
        wanted = find_parameter(parameter, workload, step)
    axis = _axis(wanted, at_least, at_most, among)
    return search_largest(wanted, axis, spec, confidence, most_captures=most_captures, curve=curve)


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


def _with_job(workload: Workload, job: Any) -> Workload:
    return dataclasses.replace(workload, job=Job.parse(job))


def _axis(
    parameter: Parameter, at_least: int | None, at_most: int | None, among: Sequence[int] | None
) -> Sequence[int]:
    if among is not None:
        if at_least is not None or at_most is not None:
            raise BadInput("a list of values and limits exclude each other; give one.")
        if not among or min(among) < 1:
            raise BadInput(f"the values of {parameter.name} must be whole numbers of at least 1.")
        return tuple(sorted(set(among)))
    low = parameter.smallest if at_least is None else at_least
    high = _NO_END if at_most is None else at_most
    if low < 1 or high < 1:
        raise BadInput(f"the limits of {parameter.name} must be at least 1.")
    if low > high:
        raise BadInput(f"the limits contradict each other: {parameter.name} at least {low} and at most {high}.")
    first = -(-low // parameter.step) * parameter.step
    if first > high:
        raise BadInput(
            f"no multiple of {parameter.step} lies between {low} and {high}; widen the limits or give a smaller --step."
        )
    return range(first, high + 1, parameter.step)


def search_largest(
    parameter: Parameter,
    axis: Sequence[int],
    spec: Spec,
    confidence: float,
    *,
    most_captures: int = MOST_CAPTURES,
    curve: bool = True,
    capturing: Capture | None = None,
) -> Fit:
    """`fit`, for what was prepared; `capturing` stands for `oomcast.capture.capture`."""
    started = time.perf_counter()
    target = ConfidentTarget(target_of(spec), confidence)
    search = _Search(parameter, axis, target, most_captures, capturing or _capturing(spec))
    search.run()
    return search.answer(curve, started)


def _capturing(spec: Spec) -> Capture:
    return lambda workload: capture(spec.with_workload(workload))


class _Search:
    """Places on the axis are numbered; a place is known once its value was captured, or refused by the job."""

    def __init__(
        self,
        parameter: Parameter,
        axis: Sequence[int],
        target: ConfidentTarget,
        most_captures: int,
        capturing: Capture,
    ) -> None:
        self.parameter = parameter
        self.axis = axis
        self.target = target
        self.most = most_captures
        self.family = TraceFamily(parameter.degree)
        self.estimates: dict[int, Estimate] = {}
        self.refused: dict[int, str] = {}
        self.checks: list[Check] = []
        self.first = 0
        """The first place that the job takes."""
        self._capturing = capturing
        self._said: dict[int, bool] = {}

    def run(self) -> None:
        start = min(bisect.bisect_left(self.axis, self.parameter.start), len(self.axis) - 1)
        if not self._look(start):
            if not self._look(0):
                raise BadInput(self.refused[start])
            self.first = 0
        while True:
            best = self._best()
            missing = [place for place in (best, best + 1) if self._open(place)]
            if not missing or len(self.checks) >= self._allowed():
                return
            self._look(self._next(missing[0]))
            self._check_that_it_matters()

    def _allowed(self) -> int:
        by_halving = self.refused or self.family.likeness() < _LIKE
        return max(self.most, _WITHOUT_FAMILY) if by_halving else self.most

    def _open(self, place: int) -> bool:
        return self.first <= place < len(self.axis) and not self._known(place)

    def _known(self, place: int) -> bool:
        return place in self.estimates or place in self.refused

    def _next(self, place: int) -> int:
        """Where to capture on the way to `place`: before it, where nothing tells what the job does there."""
        low, high = self._between()
        is_next_to_refused = high in self.refused and place == high - 1
        if high is not None and is_next_to_refused and low >= self.first and high - low > 1:
            return self._towards_refusal(low, high)
        if self.parameter.cautious and len(self.estimates) < 2:
            reach = bisect.bisect_right(self.axis, 2 * self.parameter.start) - 1
            if place > reach and self._open(reach):
                return reach
        return place

    def _towards_refusal(self, low: int, high: int) -> int:
        """Between a place that fits and one that the job refuses: where to look for the job's own limit.

        Limits of models are mostly powers of two (512 or 1,024 positions). So these are halved first, then the value
        that follows the largest of them is tried, and only then all that lies between.
        """
        powers = [place for place in self._powers() if low < place < high]
        if powers:
            return powers[len(powers) // 2]
        return low + 1 if _is_power_of_two(self.axis[low]) else (low + high) // 2

    def _powers(self) -> Iterator[int]:
        """The places of powers of two on the axis."""
        value = 1
        while value <= self.axis[-1]:
            place = bisect.bisect_left(self.axis, value)
            if self.axis[place] == value:
                yield place
            value *= 2

    def _look(self, place: int) -> bool:
        """Capture; False where the job refuses the value."""
        value = self.axis[place]
        said = self._fits(place) if self.family.captured else None
        near = min(self.family.captured, key=lambda known: abs(known - value), default=None)
        try:
            trace = self._capturing(self.parameter.workload(value))
        except TookTooLong:
            raise  # that is this machine's, not the job's, answer to the value
        except BadInput as error:
            self.refused[place] = str(error)
            self.checks.append(Check(value, False, 0, 1.0, said, None, str(error)))
            if not any(known < place for known in self.estimates):
                self.first = max(self.first, place + 1)
            return False
        same = None if near is None else trace.events == self.family.captured[near].events
        estimate = self.estimates[place] = self.target.estimate(trace)
        self.family.add(value, trace)
        self._said.clear()
        fits = self.target.fits(estimate)
        self.checks.append(Check(value, fits, estimate.least_capacity, estimate.p_oom, said, same))
        return True

    def _between(self) -> tuple[int, int | None]:
        """The largest place that is known to fit (one below the first, if none), and the next known not to."""
        low = max((place for place in self.estimates if self._fits(place)), default=self.first - 1)
        return low, min((p for p in (*self.estimates, *self.refused) if p > low and not self._fits(p)), default=None)

    def _best(self) -> int:
        """The largest place that fits, as far as can be said now; one below the first if none does."""
        low, high = self._between()
        width = 1
        while high is None:
            probe = min(low + width, len(self.axis) - 1)
            if probe <= low:
                return low
            if self._fits(probe):
                low = probe
                width *= 2
            else:
                high = probe
        while high - low > 1:
            middle = (low + high) // 2
            if self._fits(middle):
                low = middle
            else:
                high = middle
        return self._beyond(low) if len(self.estimates) > 1 else low

    def _beyond(self, low: int) -> int:
        """From one that fits to the next, as long as the next is near and the job refuses none on the way."""
        end = min((place for place in self.refused if place > low), default=len(self.axis))
        while True:
            near = range(min(low + _BEYOND, end - 1), low, -1)
            further = next((place for place in near if self._fits(place)), None)
            if further is None:
                return low
            low = further

    def _fits(self, place: int) -> bool:
        if place in self.refused:
            return False
        if place in self.estimates:
            return self.target.fits(self.estimates[place])
        if place not in self._said:
            self._said[place] = self._say(self.axis[place])
        return self._said[place]

    def _say(self, value: int) -> bool:
        if self.family.likeness() >= _LIKE:
            trace = self.family.at(value)
            # One run may end well on a device of one size and not on a larger one: only the whole estimate tells.
            if not self.target.fits_quickly(trace):
                return False
            return len(self.estimates) < 2 or self.target.fits(self.target.estimate(trace))
        points = sorted((self.axis[place], one.least_capacity) for place, one in self.estimates.items())
        after = min(max(bisect.bisect_left(points, (value, 0)), 1), len(points) - 1)
        (v0, n0), (v1, n1) = points[after - 1], points[after]
        needed = n0 + (n1 - n0) * (value - v0) / (v1 - v0)
        return needed <= self.target.limit(self.family.captured[points[0][0]])

    def _check_that_it_matters(self) -> None:
        if len(self.estimates) != 2:
            return
        one, other = self.family.captured.values()
        totals = {(e.peak_allocated, e.device_total) for e in self.estimates.values()}
        if len(totals) == 1 and {a.nbytes for a in one.allocations} == {a.nbytes for a in other.allocations}:
            first, second = sorted(self.family.captured)
            raise BadInput(
                f"{self.parameter.name} does not change the job's memory: {first} and {second} take the same; "
                "name another --parameter."
            )

    def answer(self, curve: bool, started: float) -> Fit:
        low, _ = self._between()
        found = low >= self.first and low in self.estimates
        shown = self.estimates[low] if found else self.estimates[min(self.estimates)]
        following = low + 1 if low + 1 < len(self.axis) else None
        gpu = self.target.gpu
        value = self.axis[low] if found else None
        bound = "at_most" if following is None else "refused" if following in self.refused else "memory"
        return Fit(
            job=str(shown.workload.get("job", "job")),
            parameter=self.parameter.name,
            value=value,
            following=None if following is None else self.axis[following],
            bound=bound,
            confidence=self.target.confidence,
            device=gpu.name,
            device_usable=gpu.usable_memory,
            limit=self.target.limit(next(iter(self.family.captured.values()))),
            estimate=shown,
            checks=tuple(self.checks),
            unverified=tuple(self._unverified(low, following)),
            curve=self._curve(low) if curve else (),
            floor=None if found else self._floor(shown),
            seconds=round(time.perf_counter() - started, 3),
        )

    def _unverified(self, low: int, following: int | None) -> list[str]:
        sentences = []
        if following is not None and not self._known(following):
            said = "fits" if self._fits(following) else "does not fit"
            sentences.append(
                f"{self.parameter.name} {self.axis[following]} was not captured; between captures it {said}"
            )
        best = self._best()
        if best > low and self._open(best):
            sentences.append(f"{self.parameter.name} {self.axis[best]} may fit too; it was not captured")
        return sentences

    def _floor(self, smallest: Estimate) -> Floor:
        held = smallest.breakdown
        gpu = smallest_gpu(smallest, self.target.confidence)
        return Floor(
            parameters=held.get("parameter", 0),
            gradients=held.get("gradient", 0),
            optimizer_state=held.get("optimizer_state", 0),
            context=held.get("context", 0),
            needed=smallest.least_capacity,
            smallest_gpu=None if gpu is None else gpu.name,
        )

    def _curve(self, low: int) -> tuple[CurvePoint, ...]:
        """From the smallest value to a third beyond the answer."""
        end = min(max(low + low // 3, low + 2, self.first + 4), len(self.axis) - 1)
        places = {self.first + (end - self.first) * n // (_CURVE_POINTS - 1) for n in range(_CURVE_POINTS)}
        known = {place for place in self.estimates if place <= end}
        like = self.family.likeness() >= _LIKE
        points = []
        for place in sorted(places | known if like else set(self.estimates)):
            if place in self.refused:
                continue
            value = self.axis[place]
            totals = self.target.totals(self.family.at(value))
            points.append(CurvePoint(value, *totals, captured=place in self.estimates))
        return tuple(points)
