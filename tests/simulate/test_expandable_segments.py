import pytest

from oomcast.simulate import AllocatorSettings, CachingAllocator, DeviceFull, broken_invariants
from oomcast.units import MiB

EXPANDABLE = AllocatorSettings.parse("expandable_segments:True")


def test_pages_are_2_mib_small_and_20_mib_large() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    allocator.malloc(1)
    assert allocator.reserved == 2 * MiB
    allocator.malloc(5 * MiB)
    assert allocator.reserved == 22 * MiB


def test_a_request_grows_the_free_end_of_the_segment() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    first = allocator.malloc(5 * MiB)
    # 15 of 30 MiB are there already; the other 15 take one page more.
    assert allocator.malloc(30 * MiB) == first + 5 * MiB
    assert allocator.reserved == 40 * MiB


def test_even_the_smallest_rest_is_split_off() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    address = allocator.malloc(20 * MiB - 512)
    assert allocator.block_size(address) == 20 * MiB - 512


def test_the_cache_gives_back_whole_pages() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    kept = allocator.malloc(5 * MiB)
    allocator.free(allocator.malloc(30 * MiB))
    allocator.empty_cache()
    assert allocator.reserved == 20 * MiB
    assert broken_invariants(allocator) == []
    allocator.free(kept)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (0, {})


def test_holes_are_filled_before_the_end_grows() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    first, _, _ = (allocator.malloc(20 * MiB) for _ in range(3))
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved == 40 * MiB
    assert allocator.malloc(10 * MiB) == first
    assert allocator.reserved == 60 * MiB


def test_a_hole_that_is_too_small_is_passed_over() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    first, second = allocator.malloc(20 * MiB), allocator.malloc(20 * MiB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.malloc(25 * MiB) == second + 20 * MiB


def test_best_fit_counts_what_a_block_could_grow_to() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    hole, _, end = allocator.malloc(8 * MiB), allocator.malloc(8 * MiB), allocator.malloc(2 * MiB)
    # 2 MiB are free at the end, and 8 in the hole: the end could grow without bound, so the hole is the tighter fit.
    allocator.free(hole)
    assert end == hole + 16 * MiB
    assert allocator.malloc(2 * MiB) == hole


def test_every_stream_has_its_own_segment() -> None:
    allocator = CachingAllocator(EXPANDABLE)
    allocator.malloc(5 * MiB, stream=1)
    allocator.malloc(5 * MiB, stream=2)
    assert (allocator.reserved, len(allocator.segments)) == (40 * MiB, 2)


def test_a_full_device_unmaps_what_it_can() -> None:
    allocator = CachingAllocator(EXPANDABLE, capacity=60 * MiB)
    allocator.free(allocator.malloc(40 * MiB, stream=1))
    allocator.malloc(50 * MiB, stream=2)
    assert (allocator.reserved, allocator.retries) == (60 * MiB, 1)
    with pytest.raises(DeviceFull):
        allocator.malloc(20 * MiB, stream=1)
    assert broken_invariants(allocator) == []


def test_fragments_are_joined_where_ordinary_segments_are_not() -> None:
    def peak(settings: AllocatorSettings) -> int:
        allocator = CachingAllocator(settings)
        for address in [allocator.malloc(20 * MiB) for _ in range(5)]:
            allocator.free(address)
        allocator.malloc(100 * MiB)
        return allocator.reserved

    assert peak(EXPANDABLE) == 100 * MiB
    assert peak(AllocatorSettings()) == 200 * MiB


def test_address_space_is_nine_eighths_of_the_device() -> None:
    allocator = CachingAllocator(EXPANDABLE, device_total=160 * MiB)
    allocator.malloc(180 * MiB)
    with pytest.raises(DeviceFull):
        allocator.malloc(181 * MiB)


def test_blocks_of_expandable_segments_serve_nothing_once_they_are_switched_off() -> None:
    before = CachingAllocator(EXPANDABLE)
    before.free(before.malloc(5 * MiB))
    after = CachingAllocator()
    for segment in before.layout():
        after.adopt(segment)
    after.malloc(5 * MiB)
    assert after.reserved == 40 * MiB
    after.empty_cache()
    assert after.reserved == 20 * MiB
    assert broken_invariants(after) == []
