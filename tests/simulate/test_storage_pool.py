"""MXNet's pool and its scratch: the rules one by one, and what must hold whatever is asked of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.errors import BadInput, UnknownName
from oomcast.simulate import (
    DeviceFull,
    Persistent,
    StoragePool,
    StoragePoolSettings,
    TempSpace,
    Transient,
    least_capacity,
    settings_for,
    simulate,
)
from oomcast.simulate.blocks import Block
from oomcast.trace import Allocation, Category, Event, EventKind, KernelCall, Phase, Trace
from oomcast.units import GiB, KiB, MiB


def sizes(text: str, *requests: int) -> list[int]:
    allocator = StoragePool(StoragePoolSettings.parse(text) if text else None)
    return [allocator.allocate(nbytes).size for nbytes in requests]


def test_sizes_are_rounded_to_pages_and_large_ones_to_2_mib() -> None:
    assert sizes("", 1, 4096, 4097, 2 * MiB - 1, 2 * MiB, 2 * MiB + 1, 5 * MiB) == [
        4 * KiB, 4 * KiB, 8 * KiB, 2 * MiB, 2 * MiB, 4 * MiB, 6 * MiB
    ]  # fmt: skip
    assert sizes("page_size:65536,large_round_size:1048576", 1, MiB + 1) == [64 * KiB, 2 * MiB]


def test_the_rounded_pool_has_powers_of_two_and_then_multiples() -> None:
    assert sizes("pool_type:round", 1, 4097, 3 * MiB, 16 * MiB, 16 * MiB + 1, 33 * MiB) == [
        4 * KiB, 8 * KiB, 4 * MiB, 16 * MiB, 32 * MiB, 48 * MiB
    ]  # fmt: skip
    assert sizes("pool_type:round,linear_cutoff:20", 3 * MiB - 5, 16 * MiB + 1) == [3 * MiB, 17 * MiB]


def test_without_a_pool_nothing_is_rounded_or_kept() -> None:
    allocator = StoragePool(StoragePoolSettings(pool_type="unpooled"))
    block = allocator.allocate(1000)

    assert (block.size, allocator.reserved) == (1000, 1000)
    allocator.release(block)
    assert allocator.reserved == 0


def test_a_block_is_used_again_only_for_its_own_size_and_the_latest_first() -> None:
    allocator = StoragePool()
    one, two = allocator.allocate(MiB), allocator.allocate(MiB)
    allocator.release(one)
    allocator.release(two)

    assert allocator.allocate(MiB - 1) is two
    assert allocator.allocate(MiB // 2) is not one
    assert allocator.reserved == 2 * MiB + MiB // 2


def test_a_full_device_makes_the_pool_give_back_what_it_does_not_use() -> None:
    allocator = StoragePool(StoragePoolSettings(reserve=0), capacity=100 * MiB)
    kept = allocator.allocate(40 * MiB)
    allocator.release(allocator.allocate(50 * MiB))
    allocator.allocate(60 * MiB)

    assert (allocator.reserved, allocator.retries) == (100 * MiB, 1)
    with pytest.raises(DeviceFull) as full:
        allocator.allocate(1)
    assert (full.value.requested, full.value.segment_size) == (1, 4 * KiB)
    allocator.release(kept)
    assert allocator.allocate(MiB).live


def test_the_reserve_is_kept_free_as_long_as_there_is_something_to_give_back() -> None:
    allocator = StoragePool(capacity=100 * MiB, device_total=100 * MiB)
    allocator.release(allocator.allocate(50 * MiB))
    allocator.allocate(46 * MiB)

    assert (allocator.reserved, allocator.retries) == (46 * MiB, 1)
    allocator.allocate(54 * MiB)  # the reserve is no limit
    assert (allocator.reserved, allocator.retries) == (100 * MiB, 1)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("pool_typ:round", UnknownName, "pool_type"),
        ("pool_type:rounded", UnknownName, "round"),
        ("pool_type", BadInput, "write them like"),
        ("page_size:16", BadInput, "at least 32"),
        ("pool_type:round,page_size:5000", BadInput, "power of 2"),
        ("pool_type:round,linear_cutoff:35", BadInput, "between 20 and 34"),
        ("reserve:101", BadInput, "percentage"),
        ("reserve:half", BadInput, "cannot read"),
    ],
)
def test_settings_are_checked(text: str, error: type[BadInput], message: str) -> None:
    with pytest.raises(error, match=message):
        StoragePoolSettings.parse(text)


def test_mxnet_gets_this_pool() -> None:
    assert settings_for("mxnet") == StoragePoolSettings()
    assert settings_for("mxnet", "reserve:10") == StoragePoolSettings(reserve=10)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["pool_type:naive", "pool_type:round", "pool_type:unpooled"]),
    st.lists(st.tuples(st.booleans(), st.integers(1, 40 * MiB)), max_size=60),
)
def test_what_must_hold_whatever_is_asked(text: str, requests: list[tuple[bool, int]]) -> None:
    allocator = StoragePool(StoragePoolSettings.parse(text), capacity=GiB, device_total=GiB)
    live: list[Block] = []
    for frees, nbytes in requests:
        if frees and live:
            allocator.release(live.pop(nbytes % len(live)))
        else:
            try:
                live.append(allocator.allocate(nbytes))
            except DeviceFull:
                assert allocator.reserved == allocator.allocated
        states = allocator.snapshot()
        ends = [state.address + state.size for state in states]
        assert all(end <= state.address for end, state in zip(ends, states[1:], strict=False))
        assert sum(state.size for state in states) == allocator.reserved <= GiB
        assert allocator.allocated == sum(block.size for block in live) <= allocator.reserved
        assert allocator.requested == sum(block.requested for block in live) <= allocator.allocated
        assert len({block.address for block in live}) == len(live)


def kernel(name: str) -> KernelCall:
    return KernelCall(name, (), ())


NEEDS = {"small": Transient((3 * MiB, 0)), "large": Transient((2 * GiB, 700 * MiB, 0)), "none": Transient((2 * GiB, 0))}


def trace_of(*kernels: str) -> Trace:
    made = Allocation(MiB, Category.ACTIVATION, Phase.FORWARD, 0, "relu", "", "")
    events = [Event(EventKind.ALLOCATE, 0), *(Event(EventKind.KERNEL, number) for number in range(len(kernels)))]
    return Trace(allocations=(made,), events=tuple(events), kernels=tuple(kernel(name) for name in kernels))


def test_all_kernels_share_one_space_of_the_largest_need_below_1_gib() -> None:
    trace = trace_of("none", "small", "large", "unknown")
    space = TempSpace(trace, lambda call, phase: NEEDS.get(call.operator))
    timeline = simulate(trace, settings=StoragePoolSettings(), workspace=space)

    assert space(kernel("small"), Phase.FORWARD) == Persistent("temporary space", 700 * MiB)
    assert space(kernel("none"), Phase.FORWARD) == Transient(())
    assert timeline.peak_reserved == 701 * MiB
    assert timeline.kernels_without_rule == {"unknown": 1}
    assert least_capacity(trace, settings=StoragePoolSettings(), workspace=space) == 701 * MiB
