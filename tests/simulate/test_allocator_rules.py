"""Each rule of the allocator with figures worked out by hand."""

import pytest

from oomcast.simulate import (
    AllocatorSettings,
    BlockState,
    CachingAllocator,
    DeviceFull,
    SegmentState,
    broken_invariants,
)
from oomcast.units import MiB


def test_small_requests_share_a_segment_of_2_mib() -> None:
    allocator = CachingAllocator()
    first = allocator.malloc(1)
    second = allocator.malloc(1000)
    assert second == first + 512
    assert (allocator.allocated, allocator.requested, allocator.reserved) == (512 + 1024, 1001, 2 * MiB)
    assert allocator.inactive_split == 2 * MiB - 1536


def test_one_mib_is_small_and_the_next_byte_is_not() -> None:
    allocator = CachingAllocator()
    allocator.malloc(1 * MiB)
    assert allocator.reserved == 2 * MiB
    allocator.malloc(1 * MiB + 1)
    assert allocator.reserved == 22 * MiB


def test_medium_requests_share_a_segment_of_20_mib() -> None:
    allocator = CachingAllocator()
    first = allocator.malloc(8 * MiB)
    assert allocator.malloc(9 * MiB) == first + 8 * MiB
    assert allocator.reserved == 20 * MiB
    allocator.malloc(4 * MiB)
    assert allocator.reserved == 40 * MiB


def test_a_rest_of_up_to_1_mib_stays_with_a_large_block() -> None:
    allocator = CachingAllocator()
    kept = allocator.malloc(11 * MiB)
    split = allocator.malloc(11 * MiB - 512)
    assert allocator.block_size(kept) == 12 * MiB
    assert allocator.block_size(split) == 11 * MiB - 512
    assert allocator.inactive_split == 1 * MiB + 512


def test_the_small_pool_splits_off_every_rest() -> None:
    allocator = CachingAllocator()
    address = allocator.malloc(1 * MiB - 512)
    allocator.malloc(1 * MiB)
    assert allocator.block_size(address) == 1 * MiB - 512
    allocator.malloc(512)
    assert allocator.reserved == 2 * MiB
    allocator.malloc(1)
    assert allocator.reserved == 4 * MiB


def test_best_fit_takes_the_smallest_block_that_is_enough() -> None:
    allocator = CachingAllocator()
    blocks = [allocator.malloc(size * MiB) for size in (40, 20, 30)]
    for address in blocks:
        allocator.free(address)
    assert allocator.malloc(25 * MiB) == blocks[2]
    assert allocator.malloc(15 * MiB) == blocks[1]


def test_among_equal_blocks_the_lowest_address_is_taken() -> None:
    addresses = iter([900 * MiB, 300 * MiB, 600 * MiB])
    allocator = CachingAllocator(segment_source=lambda size, stream: next(addresses))
    blocks = [allocator.malloc(20 * MiB) for _ in range(3)]
    assert blocks == [900 * MiB, 300 * MiB, 600 * MiB]
    for address in blocks:
        allocator.free(address)
    assert [allocator.malloc(20 * MiB) for _ in range(3)] == [300 * MiB, 600 * MiB, 900 * MiB]


def test_neighbours_merge_on_both_sides() -> None:
    allocator = CachingAllocator()
    first, middle, last = (allocator.malloc(6 * MiB) for _ in range(3))
    allocator.free(first)
    allocator.free(last)
    assert allocator.malloc(8 * MiB) == last
    allocator.free(last)
    allocator.free(middle)
    assert allocator.malloc(20 * MiB) == first
    assert allocator.reserved == 20 * MiB
    assert allocator.inactive_split == 0


def test_a_block_is_reused_on_its_own_stream_only() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(20 * MiB, stream=1))
    allocator.malloc(20 * MiB, stream=2)
    assert allocator.reserved == 40 * MiB
    allocator.malloc(20 * MiB, stream=1)
    assert allocator.reserved == 40 * MiB


def test_emptying_the_cache_keeps_segments_in_use() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.malloc(30 * MiB))
    allocator.free(allocator.malloc(100))
    kept = allocator.malloc(5 * MiB, stream=3)
    allocator.free(allocator.malloc(5 * MiB, stream=3))
    allocator.empty_cache()
    assert allocator.reserved == 20 * MiB
    assert allocator.peak_reserved == 52 * MiB
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.reserved == 0


def test_freeing_what_is_not_live_is_an_error() -> None:
    allocator = CachingAllocator()
    address = allocator.malloc(1)
    allocator.free(address)
    with pytest.raises(ValueError, match="no live block"):
        allocator.free(address)


def test_a_full_device_releases_its_cache_and_asks_again() -> None:
    allocator = CachingAllocator(capacity=40 * MiB)
    allocator.free(allocator.malloc(20 * MiB))
    allocator.malloc(30 * MiB)
    assert (allocator.reserved, allocator.retries, allocator.peak_reserved) == (30 * MiB, 1, 30 * MiB)


def test_a_device_that_stays_full_tells_what_was_asked() -> None:
    allocator = CachingAllocator(capacity=40 * MiB)
    allocator.malloc(5 * MiB)
    with pytest.raises(DeviceFull) as caught:
        allocator.malloc(20 * MiB + 1)
    full = caught.value
    assert (full.requested, full.segment_size) == (20 * MiB + 1, 22 * MiB)
    assert (full.allocated, full.reserved) == (5 * MiB, 20 * MiB)
    assert broken_invariants(allocator) == []
    allocator.malloc(20 * MiB)


def test_capacity_may_be_used_to_the_last_byte() -> None:
    allocator = CachingAllocator(capacity=22 * MiB)
    allocator.malloc(20 * MiB)
    allocator.malloc(1)
    assert (allocator.reserved, allocator.retries) == (22 * MiB, 0)


OVERSIZE = AllocatorSettings.parse("max_split_size_mb:128")


def test_an_unsplittable_block_serves_no_smaller_request() -> None:
    allocator = CachingAllocator(OVERSIZE)
    allocator.free(allocator.malloc(200 * MiB))
    allocator.malloc(100 * MiB)
    assert allocator.reserved == 300 * MiB


@pytest.mark.parametrize(("mib", "reserved"), [(182, 200), (180, 380)])
def test_an_unsplittable_block_serves_requests_less_than_20_mib_below(mib: int, reserved: int) -> None:
    allocator = CachingAllocator(OVERSIZE)
    allocator.free(allocator.malloc(200 * MiB))
    address = allocator.malloc(mib * MiB)
    assert allocator.reserved == reserved * MiB
    assert allocator.block_size(address) == (200 if reserved == 200 else mib) * MiB


def test_the_slack_of_unsplittable_blocks_can_be_set() -> None:
    allocator = CachingAllocator(AllocatorSettings.parse("max_split_size_mb:128,max_non_split_rounding_mb:64"))
    allocator.free(allocator.malloc(200 * MiB))
    allocator.malloc(138 * MiB)
    assert allocator.reserved == 200 * MiB


def test_only_as_many_unsplittable_blocks_are_returned_as_are_needed() -> None:
    allocator = CachingAllocator(AllocatorSettings.parse("max_split_size_mb:20"), capacity=100 * MiB)
    held = [allocator.malloc(30 * MiB), allocator.malloc(40 * MiB), allocator.malloc(1)]
    for address in held:
        allocator.free(address)
    allocator.malloc(60 * MiB)
    # 40 and 30 MiB went, the small segment did not.
    assert (allocator.reserved, allocator.retries) == (62 * MiB, 0)


def test_one_unsplittable_block_is_returned_when_it_is_enough() -> None:
    allocator = CachingAllocator(AllocatorSettings.parse("max_split_size_mb:20"), capacity=72 * MiB)
    for address in [allocator.malloc(30 * MiB), allocator.malloc(40 * MiB)]:
        allocator.free(address)
    allocator.malloc(15 * MiB)
    assert (allocator.reserved, allocator.retries) == (40 * MiB + 16 * MiB, 0)


def test_large_segments_of_another_size() -> None:
    allocator = CachingAllocator(AllocatorSettings.parse("large_segment_size_mb:40"))
    allocator.malloc(5 * MiB)
    assert allocator.reserved == 40 * MiB


COLLECTING = AllocatorSettings.parse("garbage_collection_threshold:0.5,per_process_memory_fraction:0.5")


def test_idle_segments_are_collected_above_the_threshold() -> None:
    # 200 MiB are allowed, so above 100 MiB the segment that lay idle goes.
    allocator = CachingAllocator(COLLECTING, device_total=400 * MiB)
    idle = allocator.malloc(60 * MiB)
    allocator.malloc(50 * MiB)
    allocator.free(idle)
    allocator.malloc(70 * MiB)
    assert allocator.reserved == 120 * MiB


def test_only_segments_older_than_the_average_are_collected() -> None:
    allocator = CachingAllocator(COLLECTING, device_total=400 * MiB)
    allocator.malloc(2 * MiB)
    old, young = allocator.malloc(60 * MiB), allocator.malloc(50 * MiB)
    allocator.free(old)
    for _ in range(10):
        allocator.free(allocator.malloc(2 * MiB))
    allocator.free(young)
    # 130 MiB reserved, 30 too many. Ages at the next search: 11 and 1, on average 6: only the older one goes.
    allocator.malloc(70 * MiB)
    assert sorted(segment.size for segment in allocator.layout()) == [20 * MiB, 50 * MiB, 70 * MiB]


def test_without_a_memory_fraction_nothing_is_collected() -> None:
    allocator = CachingAllocator(AllocatorSettings(garbage_collection_threshold=0.5), device_total=200 * MiB)
    allocator.free(allocator.malloc(150 * MiB))
    allocator.malloc(160 * MiB)
    assert allocator.reserved == 310 * MiB


def test_a_memory_fraction_is_a_limit() -> None:
    allocator = CachingAllocator(AllocatorSettings(per_process_memory_fraction=0.5), device_total=100 * MiB)
    allocator.malloc(40 * MiB)
    with pytest.raises(DeviceFull):
        allocator.malloc(12 * MiB)
    allocator.malloc(10 * MiB)


def test_a_state_can_be_adopted_and_told_again() -> None:
    state = SegmentState(
        address=40 * MiB,
        size=20 * MiB,
        stream=7,
        is_small=False,
        blocks=(
            BlockState(40 * MiB, 4 * MiB, live=True, requested=4 * MiB - 1),
            BlockState(44 * MiB, 6 * MiB, live=False),
            BlockState(50 * MiB, 10 * MiB, live=True, requested=10 * MiB),
        ),
    )
    allocator = CachingAllocator()
    live = allocator.adopt(state)
    assert [block.address for block in live] == [40 * MiB, 50 * MiB]
    assert allocator.layout() == (state,)
    assert broken_invariants(allocator) == []
    assert allocator.malloc(6 * MiB, stream=7) == 44 * MiB
    assert allocator.malloc(30 * MiB) >= 60 * MiB


def test_a_state_with_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="end to end"):
        CachingAllocator().adopt(SegmentState(0, 2 * MiB, 0, True, (BlockState(512, 512, live=True),)))


def test_one_segment_can_be_returned_alone() -> None:
    allocator = CachingAllocator()
    first, second = allocator.malloc(20 * MiB), allocator.malloc(20 * MiB)
    assert not allocator.release_segment(first)
    allocator.free(first)
    allocator.free(second)
    assert allocator.release_segment(first)
    assert not allocator.release_segment(first)
    assert allocator.reserved == 20 * MiB
