"""The one builder of traces: blocks, what they are for, and what is told beside them."""

from __future__ import annotations

import pytest

from oomcast.trace import BrokenTrace, Category, EventKind, KernelCall, Mark, Phase, TraceBuilder, peak_of, verify


def test_what_a_block_is_for_may_be_said_at_once_later_or_never() -> None:
    builder = TraceBuilder()
    weight = builder.allocate(400, None, "to_device")
    builder.enter(Phase.FORWARD, 0)
    kept = builder.allocate(100, None, "aten.mm", "fc", "job.py:3", (5, 5), "float32")
    gone = builder.allocate(50, None, "aten.relu")
    planned = builder.allocate(30, Category.TEMPORARY, "fusion", phase=Phase.OPTIMIZER)
    builder.free(gone)
    builder.enter(Phase.BACKWARD, 0)
    assert weight is not None
    builder.label(weight, Category.PARAMETER, "fc.weight")
    builder.label(weight, Category.BUFFER, "alias")  # the first word stands
    trace = builder.trace({"python": "3"}, {"job": "job.py"})
    verify(trace)

    assert [a.category for a in trace.allocations] == [
        Category.PARAMETER,
        Category.ACTIVATION,
        Category.TEMPORARY,
        Category.TEMPORARY,
    ]
    assert trace.allocations[0].module == "fc.weight"
    assert trace.allocations[1].shape == (5, 5)
    assert [a.phase for a in trace.allocations] == [Phase.BUILD, Phase.FORWARD, Phase.FORWARD, Phase.OPTIMIZER]
    assert builder.live() == (weight, kept, planned)
    assert trace.marks == (Mark(0, Phase.BUILD, -1), Mark(1, Phase.FORWARD, 0), Mark(5, Phase.BACKWARD, 0))
    assert peak_of(trace) == 580
    assert (trace.versions, trace.workload) == ({"python": "3"}, {"job": "job.py"})


def test_a_block_without_bytes_is_none() -> None:
    builder = TraceBuilder()
    builder.free(builder.allocate(0, Category.INPUT, "batch"))
    assert builder.event_count == 0


def test_what_dies_together_dies_in_the_order_of_birth() -> None:
    builder = TraceBuilder()
    blocks = [builder.allocate(size, None, "aten.to") for size in (1, 2, 3)]
    with builder.freeing_together():
        for block in reversed(blocks):
            builder.free(block)
    freed = [event.index for event in builder.trace().events if event.kind is EventKind.FREE]
    assert freed == blocks


def test_kernels_that_recur_are_kept_once_and_streams_are_told() -> None:
    builder = TraceBuilder()
    call = KernelCall("conv_fprop", ())
    builder.kernel(call)
    builder.stream = 1
    builder.allocate(8, None, "aten.to")
    builder.kernel(call)
    builder.empty_cache()
    trace = builder.trace()
    assert trace.kernels == (call,)
    assert trace.allocations[0].stream == 1
    assert [event.kind for event in trace.events] == [
        EventKind.KERNEL,
        EventKind.ALLOCATE,
        EventKind.KERNEL,
        EventKind.EMPTY_CACHE,
    ]


def test_what_is_not_modelled_and_what_was_assumed_is_told() -> None:
    builder = TraceBuilder()
    builder.note_unsupported("custom.op")
    builder.note_all({"custom.op": 2, "other.op": 1}, ["sizes are bounds", "sizes are bounds"])
    builder.assume("a mask was read", about_data=True)
    trace = builder.trace()
    assert trace.unsupported == {"custom.op": 3, "other.op": 1}
    assert trace.assumptions == ("sizes are bounds", "a mask was read")
    assert builder.reads_data


def test_a_block_that_is_let_go_is_held_no_more_and_freed_later() -> None:
    builder = TraceBuilder()
    first, second = builder.allocate(8, None, "aten.to"), builder.allocate(4, None, "aten.to")
    builder.let_go(first)
    assert (builder.held, builder.live()) == (4, (second,))
    builder.free(first)
    assert builder.held == 4
    kinds = [(event.kind, event.index) for event in builder.trace().events[2:]]
    assert kinds == [(EventKind.LET_GO, first), (EventKind.FREE, first)]
    with pytest.raises(BrokenTrace, match="block 0 is let go, but it is not in use"):
        builder.let_go(first)


def test_what_dies_together_is_let_go_in_the_order_of_birth() -> None:
    builder = TraceBuilder()
    blocks = [builder.allocate(8, None, "aten.to") for _ in range(3)]
    with builder.freeing_together():
        builder.free(blocks[2])
        builder.let_go(blocks[1])
        builder.free(blocks[0])
    assert [event.index for event in builder.trace().events[3:]] == blocks


def test_a_block_cannot_be_freed_twice() -> None:
    builder = TraceBuilder()
    block = builder.allocate(8, None, "aten.to")
    builder.free(block)
    with pytest.raises(BrokenTrace, match="block 0 is freed a second time"):
        builder.free(block)


def steps(builder: TraceBuilder, count: int, kept: int | None = None) -> int | None:
    """Each has two blocks, of which the second is freed in the step after, and a kernel."""
    for _ in range(count):
        builder.enter(Phase.FORWARD, builder.step + 1)
        builder.free(kept)
        first, kept = builder.allocate(10, None, "aten.mm"), builder.allocate(20, None, "aten.relu")
        builder.note_unsupported("odd")
        builder.kernel(KernelCall("aten.mm", ()))
        builder.free(first)
    return kept


@pytest.mark.parametrize("times", [1, 3])
def test_what_happened_since_a_moment_happens_again(times: int) -> None:
    repeated, whole = TraceBuilder(), TraceBuilder()
    kept = steps(repeated, 1)
    moment = repeated.moment()
    kept = steps(repeated, 1, kept)
    assert repeated.repeat_since(moment, times)
    repeated.free(kept)  # what still happens finds the blocks of the last round
    repeated.enter(Phase.SAVING, repeated.step)
    repeated.allocate(5, None, "aten.cat")
    whole.free(steps(whole, 2 + times))
    whole.enter(Phase.SAVING, whole.step)
    whole.allocate(5, None, "aten.cat")
    assert repeated.trace() == whole.trace()
    verify(repeated.trace())


def test_what_leaves_more_than_it_found_or_waits_for_a_stream_is_not_repeated() -> None:
    builder = TraceBuilder()
    kept = steps(builder, 1)
    moment = builder.moment()
    builder.allocate(10, None, "aten.mm")
    assert not builder.repeat_since(moment, 1)
    lent = builder.allocate(10, None, "aten.mm")
    assert lent is not None
    moment = builder.moment()
    builder.let_go(lent)
    assert not builder.repeat_since(moment, 1)
    builder.free(lent)
    moment = builder.moment()
    builder.free(kept)
    builder.allocate(20, None, "aten.gelu")  # as large, but another's
    assert not builder.repeat_since(moment, 1)
