"""Steps in other orders: what the allocator reserves depends on the order in which batches of unlike sizes come."""

from __future__ import annotations

from collections.abc import Sequence

from trace_builder import Builder

from oomcast.simulate import WorkspaceTable, compile_trace, reserved_in_other_orders, simulate
from oomcast.trace import Category, Phase, Trace
from oomcast.units import MiB


def job(sizes: Sequence[int], hands_over: bool = False) -> Trace:
    """One step for each size: two blocks of it, and a small one that the next step frees."""
    builder = Builder()
    builder.mark(Phase.BUILD, -1)
    weight = builder.allocate(100 * MiB, Category.PARAMETER)
    kept = None
    for step, size in enumerate(sizes):
        builder.mark(Phase.FORWARD, step)
        first, second = builder.allocate(size), builder.allocate(size + 2 * MiB)
        loss = builder.allocate(4 * MiB)
        if kept is not None:
            builder.free(kept)
        builder.mark(Phase.BACKWARD, step)
        builder.free(first)
        builder.free(second)
        if hands_over and step % 2:
            builder.allocate(6 * MiB)
        kept = loss
    assert kept is not None
    builder.free(kept)
    builder.free(weight)
    return builder.build()


def tried(trace: Trace, orders: int = 8) -> tuple[int, ...]:
    return reserved_in_other_orders(compile_trace(trace, WorkspaceTable()), orders)


def test_rising_sizes_reserve_more_than_most_other_orders() -> None:
    rising = [20 * MiB * number for number in range(1, 12)]
    trace = job(rising)
    others = tried(trace)
    assert len(others) == 8
    assert others == tried(trace), "the same orders every time"
    assert min(others) < simulate(trace).peak_reserved
    assert len(set(others)) > 1


def test_one_of_the_orders_is_what_the_simulation_of_that_order_says() -> None:
    """The two steps between the first two and the last have two orders: the given one, and the other."""
    small, large = 30 * MiB, 150 * MiB
    begin, end = [20 * MiB, 20 * MiB], [20 * MiB]
    given, other = [*begin, small, large, *end], [*begin, large, small, *end]
    both = {simulate(job(given)).peak_reserved, simulate(job(other)).peak_reserved}
    assert len(both) == 2
    assert set(tried(job(given), 16)) == both


def test_equal_sizes_reserve_the_same_in_all_orders() -> None:
    trace = job([40 * MiB] * 6)
    assert set(tried(trace)) == {simulate(trace).peak_reserved}


def test_steps_that_cannot_change_places_have_no_other_orders() -> None:
    assert tried(job([20 * MiB, 40 * MiB, 60 * MiB, 80 * MiB])) == (), "one step between the first and the last ones"
    assert tried(job([20 * MiB * number for number in range(1, 9)], hands_over=True)) == ()
