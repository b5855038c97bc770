"""Instances between captures are the captures they stand for, wherever sizes are polynomials; near them elsewhere."""

from __future__ import annotations

import pytest
from growing_job import GrowingJob
from hypothesis import given
from hypothesis import strategies as st

from oomcast.advise.trace_family import INTERPOLATED, TraceFamily
from oomcast.trace import Trace, verify


def family(job: GrowingJob, *values: int, degree: int = 1) -> TraceFamily:
    made = TraceFamily(degree)
    for value in values:
        made.add(value, job.trace(value))
    return made


def same(instance: Trace, captured: Trace) -> bool:
    return (
        instance.allocations == captured.allocations
        and instance.events == captured.events
        and instance.kernels == captured.kernels
        and instance.marks == captured.marks
    )


@given(
    st.integers(1, 40),
    st.integers(41, 90),
    st.integers(1, 500),
    st.integers(1, 5),
    st.sampled_from([8, 64, 96]),
    st.booleans(),
)
def test_two_captures_give_every_other_value(
    low: int, high: int, value: int, layers: int, width: int, squared: bool
) -> None:
    job = GrowingJob(width=width, layers=layers, squared=squared)
    instance = family(job, low, high).at(value)
    verify(instance)
    assert same(instance, job.trace(value))


def test_a_captured_value_is_given_back_as_it_is() -> None:
    job = GrowingJob()
    made = family(job, 8, 32)
    assert made.at(8) is made.captured[8]
    assert made.at(9).workload[INTERPOLATED] == 9


def test_one_capture_scales_what_a_step_makes() -> None:
    job = GrowingJob()
    assert same(family(job, 8).at(24), job.trace(24)) is False  # shapes stay: it is a first guess
    guessed = [a.nbytes for a in family(job, 8).at(24).allocations]
    assert guessed == [a.nbytes for a in job.trace(24).allocations]


@pytest.mark.parametrize("value", [30, 34, 47, 64, 80])
def test_what_is_not_affine_is_as_at_the_nearest_capture(value: int) -> None:
    """Scratch in steps, which begins at 32: the sequence of events is the nearest capture's."""
    job = GrowingJob(scratch_from=32)
    made = family(job, 8, 64)
    instance = made.at(value)
    near = 8 if value < 36 else 64
    assert instance.events == job.trace(near).events
    tensors = [a for a in instance.allocations if a.shape]
    assert tensors == [a for a in job.trace(value).allocations if a.shape]
    assert made.likeness() == 1  # scratch is not structure


def test_another_structure_is_noticed() -> None:
    made = TraceFamily()
    made.add(2, GrowingJob(layers=2).trace(8))
    made.add(9, GrowingJob(layers=9).trace(8))
    assert made.likeness() < 0.5
    assert family(GrowingJob(), 8, 32).likeness() == 1


def test_the_third_capture_makes_extents_quadratic() -> None:
    """As the tokens of an image: their number is the square of the side."""

    class Image(GrowingJob):
        def trace(self, n: int) -> Trace:
            return GrowingJob(tokens=(n // 16) ** 2 + 1).trace(4)

    assert not same(family(Image(), 64, 256, degree=2).at(512), Image().trace(512))
    assert same(family(Image(), 64, 256, 448, degree=2).at(512), Image().trace(512))
