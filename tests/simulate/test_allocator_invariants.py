"""What holds of the allocator whatever is asked of it."""

from __future__ import annotations

from allocator_strategies import Driver, capacities, operations, settings_of_allocator
from hypothesis import given, settings
from hypothesis import strategies as st

from oomcast.simulate import AllocatorSettings, CachingAllocator, broken_invariants
from oomcast.units import MiB


@settings(max_examples=200, deadline=None)
@given(operations, settings_of_allocator, capacities)
def test_invariants_hold_after_every_operation(
    todo: list[tuple[str, int, int]], allocator_settings: AllocatorSettings, capacity: int | None
) -> None:
    allocator = CachingAllocator(allocator_settings, capacity=capacity, device_total=200 * MiB)
    driver = Driver(allocator)
    for operation in todo:
        driver.apply(operation)
        assert broken_invariants(allocator) == []
        assert allocator.requested == sum(driver.live.values())


@settings(max_examples=100, deadline=None)
@given(operations, settings_of_allocator)
def test_live_blocks_never_overlap_and_hold_their_request(
    todo: list[tuple[str, int, int]], allocator_settings: AllocatorSettings
) -> None:
    driver = Driver(CachingAllocator(allocator_settings))
    for operation in todo:
        driver.apply(operation)
    end = 0
    for address in sorted(driver.live):
        size = driver.allocator.block_size(address)
        assert address >= end
        assert size >= driver.live[address]
        end = address + size


@settings(max_examples=100, deadline=None)
@given(operations, settings_of_allocator)
def test_an_allocator_that_is_all_free_gives_all_back(
    todo: list[tuple[str, int, int]], allocator_settings: AllocatorSettings
) -> None:
    driver = Driver(CachingAllocator(allocator_settings))
    for operation in todo:
        driver.apply(operation)
    for address in list(driver.live):
        driver.allocator.free(address)
    assert driver.allocator.inactive_split == 0
    driver.allocator.empty_cache()
    assert (driver.allocator.reserved, driver.allocator.allocated, driver.allocator.segments) == (0, 0, {})


@settings(max_examples=100, deadline=None)
@given(operations, operations, settings_of_allocator)
def test_an_adopted_state_goes_on_as_the_original(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], allocator_settings: AllocatorSettings
) -> None:
    original = Driver(CachingAllocator(allocator_settings))
    for operation in before:
        original.apply(operation)
    copy = Driver(CachingAllocator(allocator_settings), dict(original.live))
    for segment in original.allocator.layout():
        copy.allocator.adopt(segment)
    assert copy.allocator.layout() == original.allocator.layout()
    for operation in after:
        original.apply(operation)
        copy.apply(operation)
    assert sorted(copy.live.values()) == sorted(original.live.values())
    assert copy.allocator.reserved == original.allocator.reserved
    assert broken_invariants(copy.allocator) == []


@settings(max_examples=60, deadline=None)
@given(operations, st.data())
def test_a_broken_allocator_is_noticed(todo: list[tuple[str, int, int]], data: st.DataObject) -> None:
    driver = Driver(CachingAllocator())
    # A stream of its own, so that there is a segment with something in use and something free.
    for operation in [*todo, ("malloc", 5 * MiB, 5)]:
        driver.apply(operation)
    allocator = driver.allocator
    harm = data.draw(st.sampled_from(["size", "count", "pool", "link"]))
    segment = allocator.segments[max(allocator.segments)]
    if harm == "size":
        segment.head.size += 512
    elif harm == "count":
        allocator.reserved += 1
    elif harm == "pool":
        next(pool for pool in allocator.pools() if pool.free).free.pop()
    else:
        segment.head.before = segment.head
    assert broken_invariants(allocator)
