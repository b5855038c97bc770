"""ONNX Runtime's arena: how it grows, beside the runtime's own log, and its settings by their names."""

from __future__ import annotations

import pytest

from oomcast.errors import BadInput, UnknownName
from oomcast.simulate import ArenaSettings, BfcAllocator, DeviceFull, settings_for
from oomcast.units import GiB, MiB

LOGGED = [
    (12_032, 1_048_576),
    *[(6_000_128, 8_388_608)] * 2,
    (6_000_128, 16_777_216),
    *[(60_000_000, 67_108_864)] * 2,
    (60_000_000, 134_217_728),
    *[(720_000_000, 1_073_741_824)] * 3,
    *[(1_080_000_000, 2_147_483_648)] * 3,
]
"""Requests that made the arena of onnxruntime 1.31.1 grow, and by how much ("Extending BFCArena", "Extended allocation
by"), of a chain of operators that keeps its outputs."""


def regions(allocator: BfcAllocator) -> list[int]:
    return [region.size for region in allocator.snapshot()]


def test_regions_are_those_of_the_runtimes_own_log() -> None:
    arena = BfcAllocator(ArenaSettings())
    for request, _ in LOGGED:
        arena.allocate(request)

    assert regions(arena) == [size for _, size in LOGGED]


def test_from_one_gib_on_regions_double_no_more() -> None:
    arena = BfcAllocator(ArenaSettings())
    for _ in range(4 * 1024):
        arena.allocate(MiB)

    assert regions(arena) == [*(2**power * MiB for power in range(10)), *[GiB] * 4][: len(regions(arena))]
    assert arena.reserved <= 4 * GiB + 1023 * MiB


def test_regions_may_be_what_was_asked_for() -> None:
    arena = BfcAllocator(settings_for("onnx", "arena_extend_strategy:kSameAsRequested"))  # type: ignore[arg-type]
    for nbytes in (1000, 3 * MiB, 700 * MiB):
        arena.allocate(nbytes)

    assert regions(arena) == [1024, 3 * MiB, 700 * MiB]


def test_a_limit_is_kept_and_a_full_arena_gives_nothing_back() -> None:
    settings = settings_for("onnx", f"gpu_mem_limit:{8 * MiB},initial_chunk_size_bytes:{2 * MiB}")
    arena = BfcAllocator(settings, capacity=GiB)  # type: ignore[arg-type]
    arena.release(arena.allocate(2 * MiB))
    arena.allocate(4 * MiB)

    assert regions(arena) == [2 * MiB, 4 * MiB]
    with pytest.raises(DeviceFull):
        arena.allocate(5 * MiB)  # there is room, if the first region went


@pytest.mark.parametrize("text", ["arena_extend_strategy:doubled", "gpu_mem_limit:0", "gpu_mem_limit:2GB"])
def test_values_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadInput, match="arena_extend_strategy:kSameAsRequested"):
        settings_for("onnx", text)


def test_names_of_other_pools_are_refused() -> None:
    with pytest.raises(UnknownName, match="gpu_mem_limit"):
        settings_for("onnx", "allow_growth:false")
