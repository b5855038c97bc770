"""The search: the largest value is the one that trying all of them finds, and nothing is claimed without a capture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from growing_job import GrowingJob
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.advise import Fit, fit
from oomcast.advise.confidence import ConfidentTarget
from oomcast.advise.largest import _Search, search_largest
from oomcast.advise.parameters import Parameter
from oomcast.errors import BadInput, TookTooLong
from oomcast.estimation import target_of
from oomcast.spec import Spec
from oomcast.trace import Trace

SPEC = Spec.read("zoo:mlp", device="1GiB", use_calibration=False)
TARGET = target_of(SPEC)


def parameter(start: int = 8) -> Parameter:
    return Parameter("batch-size", lambda n: dataclasses.replace(SPEC.workload, batch_size=n), start)


def search(trace: Callable[[int], Trace], high: int = 4000, confidence: float = 0.95, **more: Any) -> Fit:
    return search_largest(
        parameter(more.pop("start", 8)),
        range(1, high + 1),
        SPEC,
        confidence,
        capturing=lambda workload: trace(workload.batch_size),
        **more,
    )


def by_trying_all(trace: Callable[[int], Trace], high: int, confidence: float = 0.95) -> int | None:
    target = ConfidentTarget(TARGET, confidence)
    return max((n for n in range(1, high + 1) if target.fits(target.estimate(trace(n)))), default=None)


@settings(max_examples=5, deadline=None)
@given(st.integers(1, 4), st.sampled_from([512, 1024, 2048]), st.integers(200, 700), st.booleans(), st.integers(0, 40))
def test_it_is_the_one_that_trying_all_finds(
    layers: int, width: int, tokens: int, squared: bool, scratch_from: int
) -> None:
    job = GrowingJob(width, layers, tokens, squared, scratch_from)
    found = search(job.trace, high=60)
    assert found.value == by_trying_all(job.trace, 60)
    if found.unverified == ():
        assert found.captures <= 4
    captured = {check.value for check in found.checks}
    assert found.value is None or found.value in captured


def test_the_answer_and_the_next_are_captured() -> None:
    found = search(GrowingJob(width=1024, tokens=64).trace)
    assert found.value is not None
    assert found.bound == "memory"
    fits = {check.value: check.fits for check in found.checks}
    assert fits[found.value] is True
    assert fits[found.value + 1] is False
    assert found.unverified == ()
    assert found.estimate.workload["batch_size"] == found.value
    assert found.estimate.p_oom <= 0.05 + 1e-9


def test_less_confidence_takes_more() -> None:
    job = GrowingJob(width=1024, tokens=64)
    sure, daring = search(job.trace, confidence=0.99), search(job.trace, confidence=0.5)
    assert sure.value is not None
    assert daring.value is not None
    assert sure.value < daring.value
    assert sure.limit < daring.limit <= TARGET.gpu.usable_memory


def test_too_few_captures_are_said() -> None:
    found = search(GrowingJob(width=1024, tokens=64).trace, most_captures=2)
    assert found.captures == 2
    assert any("was not captured" in sentence for sentence in found.unverified)


def test_a_limit_ends_it() -> None:
    found = search(GrowingJob().trace, high=20)
    assert (found.value, found.bound, found.following, found.unverified) == (20, "at_most", None, ())


def test_nothing_fits_and_the_floor_is_told() -> None:
    job = GrowingJob(width=16384, layers=4)
    found = search(job.trace)
    assert found.value is None
    assert not found.fits
    assert found.floor is not None
    assert found.floor.parameters == 4 * 16384**2 * 4
    assert found.floor.needed == found.estimate.least_capacity > TARGET.gpu.usable_memory
    assert found.floor.smallest_gpu is not None


def test_values_that_the_job_refuses() -> None:
    """Batch norm refuses 1; there are only 100 positions."""

    def trace(n: int) -> Trace:
        if n == 1:
            raise BadInput("one value per channel.")
        if n > 100:
            raise BadInput(f"there are 100 positions, not {n}.")
        return GrowingJob().trace(n)

    found = search(trace)
    assert (found.value, found.bound) == (100, "refused")
    assert next(check for check in found.checks if check.value == 101).refused.startswith("there are 100")

    def large(n: int) -> Trace:
        if n == 1:
            raise BadInput("one value per channel.")
        return GrowingJob(width=1024, tokens=16384).trace(n)

    assert search(large).value == by_trying_all(lambda n: large(max(n, 2)), 12)


@pytest.mark.parametrize(("positions", "most"), [(1024, 7), (512, 7), (1000, 18), (3999, 18), (9, 18)])
def test_a_jobs_own_limit_takes_few_captures(positions: int, most: int) -> None:
    """What the refusal says is never read: the words could be anyone's."""

    def trace(n: int) -> Trace:
        if n > positions:
            raise BadInput("expected 7 of 2048, got 31.")
        return GrowingJob().trace(n)

    found = search(trace)
    assert (found.value, found.bound) == (positions, "refused")
    assert found.captures <= most


def test_a_job_that_refuses_everything_says_why() -> None:
    def trace(n: int) -> Trace:
        raise BadInput("there is no data.")

    with pytest.raises(BadInput, match="there is no data"):
        search(trace)


def test_a_parameter_without_effect_is_an_error() -> None:
    with pytest.raises(BadInput, match="does not change the job's memory"):
        search(lambda n: GrowingJob().trace(16))


def test_a_structure_that_changes_is_searched_by_captures() -> None:
    """The number of layers: nothing can be interpolated, so more captures are made, and the answer is as sure."""

    def trace(n: int) -> Trace:
        return GrowingJob(width=1024, tokens=64, layers=n).trace(16)

    found = search(trace)
    assert found.value == by_trying_all(trace, 90)
    assert found.unverified == ()
    assert 4 < found.captures <= 24


def test_the_curve_rises_and_marks_captures() -> None:
    found = search(GrowingJob(width=1024, tokens=64).trace)
    values = [point.value for point in found.curve]
    assert values == sorted(set(values))
    assert found.value in values
    assert all(low.allocated <= high.allocated for low, high in zip(found.curve, found.curve[1:], strict=False))
    assert all(point.low < point.reserved < point.high for point in found.curve)
    assert {p.value for p in found.curve if p.captured} == {c.value for c in found.checks if c.value <= values[-1]}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"confidence": 1.5}, "confidence must be above 0"),
        ({"confidence": 0.0}, "confidence must be above 0"),
        ({"at_least": 9, "at_most": 3}, "contradict each other"),
        ({"at_most": 0}, "at least 1"),
        ({"step": 64, "at_least": 70, "at_most": 100}, "no multiple of 64"),
        ({"parameter": "WIDTH"}, "unknown parameter 'WIDTH'"),
        ({"among": [4, 8], "at_most": 8}, "exclude each other"),
        ({"most_captures": 1}, "at least 2 captures"),
        ({"device": "a10o"}, "unknown device"),
    ],
)
def test_mistakes_are_told(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        fit("zoo:mlp", **({"device": "rtx-3090"} | options))  # type: ignore[arg-type]


def test_one_that_fits_again_beyond_some_that_do_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    search = _Search(
        parameter(), range(1, 200), ConfidentTarget(TARGET, 0.95), 4, lambda workload: GrowingJob().trace(1)
    )
    fitting = {*range(40), 43, 44, 59, 74}
    monkeypatch.setattr(search, "_fits", fitting.__contains__)
    assert search._beyond(39) == 74
    fitting.add(91)  # too far away to be looked at
    assert search._beyond(39) == 74
    assert search._beyond(75) == 91


def test_a_time_limit_is_no_refusal_of_the_job() -> None:
    job = GrowingJob(width=1024, tokens=64)

    def slow_when_large(size: int) -> Trace:
        if size > 100:
            raise TookTooLong("zoo:mlp did not return in time")
        return job.trace(size)

    with pytest.raises(TookTooLong):
        search(slow_when_large)
