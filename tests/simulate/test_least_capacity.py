"""The least memory that a job still runs with, and the trials that find it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_builder import Builder, traces

from oomcast.simulate import (
    AllocatorSettings,
    CachingAllocator,
    DeviceFull,
    Transient,
    WorkspaceTable,
    compile_trace,
    least_capacity,
    least_capacity_of,
    run_program,
    simulate,
)
from oomcast.simulate.caching_allocator import FirstRefusal
from oomcast.simulate.least_capacity import _Beginning, _Trials
from oomcast.trace import Trace
from oomcast.units import MiB

BORROWS_40_MIB = WorkspaceTable().with_rules({"conv_fprop": lambda call, phase, device: Transient((40 * MiB,))})
LARGE_CARD = 80 * 1024 * MiB


def test_a_job_without_events_needs_nothing() -> None:
    assert least_capacity(Trace((), ())) == 0


def test_the_least_capacity_is_below_what_is_reserved_freely() -> None:
    job = Builder()
    first = job.allocate(30 * MiB)
    job.allocate(10 * MiB)
    job.free(first)
    job.allocate(40 * MiB)
    trace = job.build()
    assert simulate(trace).peak_reserved == 80 * MiB
    assert least_capacity(trace) == 50 * MiB
    assert simulate(trace, capacity=50 * MiB).retries == 1


def test_one_run_tells_of_all_sizes_on_which_it_would_have_been_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 64 MiB the cache is released once, and 50 are reserved: so it is with any size from 50 to 79 MiB."""
    tried: list[int] = []
    really = _Trials._tried
    monkeypatch.setattr(_Trials, "_tried", lambda *args, **named: (tried.append(args[1]), really(*args, **named))[1])
    job = Builder()
    first = job.allocate(30 * MiB)
    job.allocate(10 * MiB)
    job.free(first)
    job.allocate(40 * MiB)
    assert least_capacity(job.build(), device_total=1024 * MiB) == 50 * MiB
    assert len(tried) == 1


@settings(max_examples=60, deadline=None)
@given(traces(), st.sampled_from([None, 80 * 1024 * MiB]), st.booleans())
def test_a_job_runs_in_its_least_capacity_and_not_in_less(trace: Trace, total: int | None, grows: bool) -> None:
    """With a device's total, sizes on which the allocator would have answered as in an earlier run are not tried."""
    options: dict[str, Any] = {"device_total": total, "settings": AllocatorSettings(expandable_segments=grows)}
    free = simulate(trace, **options)
    least = least_capacity(trace, **options)
    assert free.peak_allocated <= least <= free.peak_reserved
    assert simulate(trace, capacity=least, **options).ran
    assert simulate(trace, capacity=free.peak_reserved, **options).ran
    if least >= 2 * MiB:
        failed = simulate(trace, capacity=least - 2 * MiB, **options)
        assert not failed.ran
        assert failed.peak_reserved <= least - 2 * MiB


@settings(max_examples=80, deadline=None)
@given(traces(), st.integers(0, 40))
def test_a_run_that_goes_on_from_a_copy_ends_as_one_from_the_start(trace: Trace, more: int) -> None:
    program = compile_trace(trace, BORROWS_40_MIB)
    free = run_program(program, device_total=LARGE_CARD)
    smallest = max(free.peak_allocated, 1)
    begun = _Beginning(program, CachingAllocator(capacity=0, device_total=LARGE_CARD))
    for capacity in (smallest, smallest + more * MiB):
        begun.goes_on_to(capacity)
        run, first, begin = begun.continued(capacity + more * MiB)
        reserved = begun.reserved
        for span in program.spans[first:]:
            reserved = max(reserved, run.span(span, begin).reserved)
            begin = 0
            if run.failure is not None:
                break
        whole = run_program(program, capacity=capacity + more * MiB, device_total=LARGE_CARD)
        assert run.failure == whole.failure
        assert reserved == whole.peak_reserved
        assert (run.peak_allocated, run.allocator.retries) == (whole.peak_allocated, whole.retries)
        assert run.allocator.inactive_split == whole.end_inactive_split


@settings(max_examples=40, deadline=None)
@given(traces(), st.sampled_from(["", "expandable_segments:True", "garbage_collection_threshold:0.5"]))
def test_what_is_known_of_the_free_run_changes_no_answer(trace: Trace, conf: str) -> None:
    allocator = AllocatorSettings.parse(conf) if conf else AllocatorSettings()
    program = compile_trace(trace, BORROWS_40_MIB)
    endless = run_program(program, settings=allocator, device_total=LARGE_CARD)
    known = least_capacity_of(program, settings=allocator, device_total=LARGE_CARD, endless=endless)
    assert known == least_capacity_of(program, settings=allocator, device_total=LARGE_CARD)


def test_an_allocator_that_stops_at_a_refusal_has_done_nothing() -> None:
    allocator = CachingAllocator(capacity=60 * MiB, device_total=LARGE_CARD)
    allocator.stops_at_refusal = True
    allocator.malloc(30 * MiB)
    idle = allocator.malloc(20 * MiB)
    allocator.free(idle)
    before = allocator.layout()
    with pytest.raises(FirstRefusal):
        allocator.malloc(40 * MiB)
    assert allocator.layout() == before
    assert allocator.retries == 0


def test_a_copy_lives_on_by_itself() -> None:
    allocator = CachingAllocator(capacity=60 * MiB, device_total=LARGE_CARD)
    kept = allocator.malloc(30 * MiB)
    allocator.free(allocator.malloc(20 * MiB))
    copy, blocks = allocator.copied(100 * MiB)
    assert copy.layout() == allocator.layout()
    assert blocks[kept].live
    copy.malloc(40 * MiB)  # beside the 20 MiB that are cached
    copy.free(kept)
    assert (copy.reserved, copy.allocated) == (90 * MiB, 40 * MiB)
    assert (allocator.reserved, allocator.allocated) == (50 * MiB, 30 * MiB)
    with pytest.raises(DeviceFull):
        allocator.malloc(40 * MiB)
