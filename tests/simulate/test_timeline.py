from __future__ import annotations

import pytest
from hypothesis import given, settings
from trace_builder import CONVOLUTION, MATMUL, Builder, traces

from oomcast.simulate import (
    AllocatorSettings,
    Persistent,
    Transient,
    WorkspaceTable,
    simulate,
)
from oomcast.trace import BrokenTrace, Category, Event, EventKind, KernelCall, Phase, Trace
from oomcast.units import MiB

CUBLAS = 8_519_680
BORROWS_40_MIB = WorkspaceTable().with_rules({"conv_fprop": lambda call, phase, device: Transient((40 * MiB,))})


def test_peaks_are_those_of_the_allocator() -> None:
    job = Builder()
    first = job.allocate(30 * MiB - 1)
    job.allocate(100)
    job.free(first)
    job.allocate(40 * MiB)
    timeline = simulate(job.build())
    assert timeline.ran
    assert (timeline.peak_allocated, timeline.peak_reserved) == (40 * MiB + 512, 72 * MiB)
    assert timeline.peak_requested == 40 * MiB + 100
    assert (timeline.peak.position, timeline.peak.reserved) == (3, 72 * MiB)
    assert timeline.peak.inactive_split == 2 * MiB - 512
    assert timeline.fragmentation_at_peak == timeline.fragmentation_at_end == 72 * MiB - 40 * MiB - 512
    assert [(block.allocation, block.size) for block in timeline.live_at_peak] == [(1, 512), (2, 40 * MiB)]


def test_a_block_that_a_stream_still_uses_is_not_counted_and_not_reused() -> None:
    job = Builder()
    lent = job.allocate(30 * MiB)
    job.let_go(lent)
    job.allocate(30 * MiB)
    job.free(lent)
    job.allocate(30 * MiB)
    timeline = simulate(job.build())
    assert (timeline.peak_allocated, timeline.peak_reserved, timeline.end_allocated) == (60 * MiB,) * 3
    assert timeline.breakdown == {"activation": 60 * MiB}
    assert [block.allocation for block in timeline.live_at_peak] == [1, 2]
    assert timeline.spans[0].end_allocated == 60 * MiB


def test_the_breakdown_counts_blocks_not_requests() -> None:
    job = Builder()
    job.allocate(1, Category.PARAMETER)
    job.allocate(11 * MiB, Category.GRADIENT)
    job.allocate(5 * MiB, Category.GRADIENT)
    timeline = simulate(job.build())
    # The gradient of 11 MiB holds its whole segment of 12.
    assert timeline.breakdown == {"parameter": 512, "gradient": 17 * MiB}
    assert timeline.peak_allocated == 17 * MiB + 512


def test_phases_and_steps_have_their_own_peaks() -> None:
    job = Builder()
    job.allocate(20 * MiB)
    job.mark(Phase.FORWARD, 0)
    activation = job.allocate(30 * MiB)
    job.mark(Phase.BACKWARD, 0)
    job.free(activation)
    job.empty_cache()
    job.mark(Phase.OPTIMIZER, 1)
    job.allocate(10 * MiB)
    timeline = simulate(job.build())
    assert [(span.phase, span.step, span.first, span.allocated, span.reserved) for span in timeline.spans] == [
        (Phase.BUILD, -1, 0, 20 * MiB, 20 * MiB),
        (Phase.FORWARD, 0, 1, 50 * MiB, 50 * MiB),
        (Phase.BACKWARD, 0, 2, 50 * MiB, 50 * MiB),
        (Phase.OPTIMIZER, 1, 4, 30 * MiB, 30 * MiB),
    ]
    assert (timeline.peak.phase, timeline.peak.step) == (Phase.FORWARD, 0)


def test_empty_tensors_take_no_memory() -> None:
    job = Builder()
    job.free(job.allocate(0))
    assert simulate(job.build()).peak_reserved == 0


def test_a_trace_without_events_is_nothing() -> None:
    timeline = simulate(Trace((), ()))
    assert (timeline.peak_allocated, timeline.peak_reserved, timeline.peak.position) == (0, 0, -1)
    assert timeline.live_at_peak == ()


def test_cublas_takes_one_workspace_per_thread() -> None:
    job = Builder()
    job.mark(Phase.FORWARD)
    job.call(MATMUL)
    job.call(MATMUL)
    job.mark(Phase.BACKWARD)
    job.call(MATMUL)
    job.mark(Phase.OPTIMIZER)
    job.call(MATMUL)
    timeline = simulate(job.build())
    assert timeline.peak_allocated == 2 * CUBLAS
    assert timeline.breakdown == {"workspace": 2 * CUBLAS}
    assert [block.name for block in timeline.live_at_peak] == ["cuBLAS, main thread", "cuBLAS, autograd thread"]
    assert {block.allocation for block in timeline.live_at_peak} == {None}


def test_a_borrowed_workspace_is_there_at_its_moment_only() -> None:
    job = Builder()
    job.allocate(20 * MiB)
    job.call(CONVOLUTION)
    job.allocate(30 * MiB)
    timeline = simulate(job.build(), workspace=BORROWS_40_MIB, record_curve=True)
    assert timeline.peak_allocated == 60 * MiB
    assert [(block.name, block.size) for block in timeline.live_at_peak] == [
        ("aten.op0", 20 * MiB),
        ("conv_fprop", 40 * MiB),
    ]
    assert timeline.breakdown == {"activation": 20 * MiB, "workspace": 40 * MiB}
    # What it leaves in the cache serves the next request.
    assert timeline.peak_reserved == 60 * MiB
    assert list(timeline.allocated_curve or ()) == [20 * MiB, 60 * MiB, 50 * MiB]
    assert list(timeline.reserved_curve or ()) == [20 * MiB, 60 * MiB, 60 * MiB]


def test_of_several_workspaces_the_first_that_fits_is_borrowed() -> None:
    def plans(call: KernelCall, phase: Phase, /) -> Transient:
        return Transient((90 * MiB, 50 * MiB, 10 * MiB))

    def no_workspace_after_all(call: KernelCall, phase: Phase, /) -> Transient:
        return Transient((90 * MiB, 0))

    job = Builder()
    job.allocate(20 * MiB)
    job.call(CONVOLUTION)
    trace = job.build()
    assert simulate(trace, workspace=plans).peak_allocated == 110 * MiB
    assert simulate(trace, workspace=plans, capacity=80 * MiB).peak_allocated == 70 * MiB
    assert simulate(trace, workspace=no_workspace_after_all, capacity=80 * MiB).peak_allocated == 20 * MiB
    failure = simulate(trace, workspace=plans, capacity=25 * MiB).failure
    assert failure is not None
    assert (failure.name, failure.allocation, failure.requested) == ("conv_fprop", None, 10 * MiB)


def test_kernels_without_a_rule_are_counted() -> None:
    job = Builder()
    for kernel in (CONVOLUTION, MATMUL, CONVOLUTION):
        job.call(kernel)
    assert simulate(job.build()).kernels_without_rule == {"conv_fprop": 2}


def test_a_kernel_known_to_take_nothing_is_not_counted() -> None:
    job = Builder()
    job.call(CONVOLUTION)
    timeline = simulate(job.build(), workspace=lambda call, phase: Transient(()))
    assert (timeline.kernels_without_rule, timeline.peak_reserved) == ({}, 0)


def test_persistent_workspaces_are_told_apart_by_key() -> None:
    job = Builder()
    job.call(CONVOLUTION)
    job.call(MATMUL)
    job.call(CONVOLUTION)
    timeline = simulate(job.build(), workspace=lambda call, phase: Persistent(call.operator, 10 * MiB))
    assert timeline.peak_allocated == 20 * MiB


def test_a_job_that_does_not_fit_tells_which_request_failed() -> None:
    job = Builder()
    job.allocate(30 * MiB)
    job.mark(Phase.BACKWARD, 2)
    cached = job.allocate(20 * MiB)
    job.free(cached)
    failing = job.allocate(25 * MiB)
    job.allocate(1)
    timeline = simulate(job.build(), capacity=50 * MiB, record_curve=True)
    failure = timeline.failure
    assert not timeline.ran
    assert failure is not None
    assert (failure.allocation, failure.position, failure.phase, failure.step) == (failing, 3, Phase.BACKWARD, 2)
    assert (failure.requested, failure.segment_size) == (25 * MiB, 26 * MiB)
    assert (failure.allocated, failure.reserved) == (30 * MiB, 30 * MiB)
    assert timeline.retries == 1
    assert timeline.peak_allocated == 50 * MiB
    assert list(timeline.allocated_curve or ()) == [30 * MiB, 50 * MiB, 30 * MiB]


def test_settings_reach_the_allocator() -> None:
    job = Builder()
    for number in [job.allocate(20 * MiB) for _ in range(5)]:
        job.free(number)
    job.allocate(100 * MiB)
    assert simulate(job.build()).peak_reserved == 200 * MiB
    assert simulate(job.build(), settings=AllocatorSettings(expandable_segments=True)).peak_reserved == 100 * MiB


def test_a_broken_trace_is_refused() -> None:
    with pytest.raises(BrokenTrace):
        simulate(Trace((), (Event(EventKind.FREE, 0),)))


@settings(max_examples=100, deadline=None)
@given(traces())
def test_what_is_live_at_the_peak_sums_to_it(trace: Trace) -> None:
    timeline = simulate(trace, workspace=BORROWS_40_MIB, record_curve=True)
    assert sum(block.size for block in timeline.live_at_peak) == timeline.peak_allocated
    assert sum(timeline.breakdown.values()) == timeline.peak_allocated
    assert timeline.peak_reserved >= timeline.peak_allocated >= timeline.peak_requested
    assert timeline.allocated_curve is not None
    assert timeline.reserved_curve is not None
    assert len(timeline.allocated_curve) == len(timeline.reserved_curve) == len(trace.events)
    assert max(timeline.allocated_curve, default=0) == timeline.peak_allocated
    assert max(timeline.reserved_curve, default=0) == timeline.peak_reserved
    assert max(span.allocated for span in timeline.spans) == timeline.peak_allocated


@settings(max_examples=50, deadline=None)
@given(traces())
def test_the_same_trace_gives_the_same_bytes(trace: Trace) -> None:
    assert simulate(trace, record_curve=True) == simulate(trace, record_curve=True)


@settings(max_examples=60, deadline=None)
@given(traces(kernels=False))
def test_a_failure_leaves_figures_that_hold_together(trace: Trace) -> None:
    timeline = simulate(trace, capacity=24 * MiB)
    assert timeline.peak_reserved <= 24 * MiB
    assert sum(timeline.breakdown.values()) == timeline.peak_allocated
    if timeline.failure is not None:
        assert trace.events[timeline.failure.position] == (EventKind.ALLOCATE, timeline.failure.allocation)
        assert timeline.failure.reserved + timeline.failure.segment_size > 24 * MiB
