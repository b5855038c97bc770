"""The counters that follow a trace in the making answer what a simulation of the trace so far answers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.simulate import LiveMemory, WorkspaceTable, simulate
from oomcast.trace import KernelCall, Operand, Phase, TraceBuilder
from oomcast.units import MiB

_MATRIX = Operand((64, 64), (64, 1), "float32")
_GEMM = KernelCall("aten.mm", (_MATRIX, _MATRIX))
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(1, 30 * MiB), st.integers(0, 2)),
        st.tuples(st.just("free"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("kernel"), st.just(0), st.just(0)),
        st.tuples(st.just("phase"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
        st.tuples(st.just("ask"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(_steps)
def test_the_counters_agree_with_the_simulation_at_every_moment(steps: list[tuple[str, int, int]]) -> None:
    builder, rules = TraceBuilder(), WorkspaceTable()
    memory = LiveMemory(builder, rules)
    held: list[int] = []
    for what, number, stream in steps:
        if what == "take":
            builder.stream = stream
            block = builder.allocate(number, None, "aten.empty")
            assert block is not None
            held.append(block)
        elif what == "free" and held:
            builder.free(held.pop(number % len(held)))
        elif what == "kernel":
            builder.kernel(_GEMM)
        elif what == "phase":
            builder.enter(list(Phase)[number], 0)
        elif what == "empty":
            builder.empty_cache()
        elif what == "ask":
            timeline = simulate(builder.trace(), workspace=rules)
            allocator = memory.now()
            assert (allocator.allocated, allocator.reserved) == (timeline.end_allocated, timeline.end_reserved)
            assert allocator.peak_allocated == timeline.peak_allocated
            assert allocator.peak_reserved == timeline.peak_reserved
    assert sum(segment.size for segment in memory.segments()) == memory.now().reserved


def test_peaks_begin_anew_with_what_is_held() -> None:
    builder = TraceBuilder()
    memory = LiveMemory(builder, WorkspaceTable())
    first = builder.allocate(8 * MiB, None, "aten.empty")
    builder.allocate(4 * MiB, None, "aten.empty")
    builder.free(first)
    assert memory.now().peak_allocated == 12 * MiB
    memory.reset_peaks()
    assert memory.now().peak_allocated == 4 * MiB
