"""Recordings made by the simulated allocator itself, from a warm start, must replay to the byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from allocator_strategies import operations
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from snapshot_recorder import Recorder

from oomcast.simulate import AllocatorSettings, CachingAllocator, ReplayResult, Snapshot, read_snapshot, replay
from oomcast.units import MiB


def snapshot_of(document: dict[str, Any], folder: Path) -> Snapshot:
    path = folder / "snapshot.json"
    path.write_text(json.dumps(document))
    return read_snapshot(path)


def recorded(
    folder: Path,
    warm_up: list[tuple[str, int, int]],
    then: list[tuple[str, int, int]],
    allocator_settings: AllocatorSettings | None = None,
) -> tuple[ReplayResult, Recorder]:
    recorder = Recorder(CachingAllocator(allocator_settings))
    for operation in warm_up:
        recorder.apply(operation)
    recorder.begin()
    for operation in then:
        recorder.apply(operation)
    return replay(snapshot_of(recorder.document(), folder)), recorder


def in_blocks_of_two_mib(todo: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Large requests in whole multiples of 2 MiB leave no rest, so a recording tells every block's size."""
    step = 2 * MiB
    return [
        (kind, -(-number // step) * step if kind == "malloc" and number > MiB else number, stream)
        for kind, number, stream in todo
    ]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations, operations, st.booleans())
def test_a_recording_replays_exactly_from_a_warm_start(
    tmp_path: Path, warm_up: list[tuple[str, int, int]], then: list[tuple[str, int, int]], expandable: bool
) -> None:
    chosen = AllocatorSettings(expandable_segments=expandable)
    result, recorder = recorded(tmp_path, in_blocks_of_two_mib(warm_up), in_blocks_of_two_mib(then), chosen)
    assert result.starts_from_known_state, result.reason
    assert result.divergence is None
    assert result.addresses_equal == result.allocations
    assert result.exact
    assert result.layout_equal
    assert result.simulated_reserved == recorder.allocator.reserved


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations)
def test_a_recording_from_the_first_allocation_replays_exactly_whatever_the_sizes(
    tmp_path: Path, todo: list[tuple[str, int, int]]
) -> None:
    result, _ = recorded(tmp_path, [], todo)
    assert result.starts_from_known_state
    assert (result.exact, result.layout_equal, result.divergence) == (True, True, None)


def test_a_rest_too_small_to_split_is_found_again(tmp_path: Path) -> None:
    # 11 MiB in a segment of 12: the block keeps the last MiB, and says nothing of it when it is freed.
    result, _ = recorded(tmp_path, [("malloc", 11 * MiB, 0)], [("free", 0, 0), ("malloc", 12 * MiB, 0)])
    assert (result.exact, result.layout_equal, result.addresses_equal) == (True, True, 1)


def test_a_rest_is_found_where_another_block_begins(tmp_path: Path) -> None:
    warm_up = [("malloc", size * MiB, 0) for size in (3, 6, 2)] + [("free", 1, 0), ("malloc", 5 * MiB + MiB // 2, 0)]
    # 5.5 MiB took the hole of 6; behind it 2 MiB are free once their block went.
    then = [("free", 2, 0), ("malloc", 4 * MiB, 0), ("free", 1, 0), ("malloc", 6 * MiB, 0)]
    result, _ = recorded(tmp_path, warm_up, then)
    assert (result.exact, result.layout_equal, result.divergence) == (True, True, None)


def test_a_rest_that_nothing_tells_of_is_said_to_be_unknown(tmp_path: Path) -> None:
    # 5.5 MiB sit in a hole of 6, and the 2.5 MiB behind are free from the start: it looks as if 3 were.
    warm_up = [("malloc", size, 0) for size in (3 * MiB, 6 * MiB, 5 * MiB // 2, 8 * MiB)]
    warm_up += [("free", 1, 0), ("malloc", 11 * MiB // 2, 0), ("free", 2, 0)]
    # So 3 MiB are put there by the simulation, and were not by the allocator.
    result, _ = recorded(tmp_path, warm_up, [("malloc", 3 * MiB, 0), ("free", 1, 0)])
    assert not result.exact
    assert result.divergence is not None
    assert not result.starts_from_known_state
    assert "does not tell how large 1 of the blocks" in result.reason


def test_a_release_of_the_cache_is_followed(tmp_path: Path) -> None:
    warm_up = [("malloc", 40 * MiB, 0), ("malloc", 1, 0), ("free", 0, 0)]
    result, _ = recorded(tmp_path, warm_up, [("empty", 0, 0), ("malloc", 30 * MiB, 0)])
    assert result.exact
    assert (result.start_reserved, result.simulated_reserved) == (42 * MiB, 32 * MiB)
    assert result.recorded_peak_reserved == result.simulated_peak_reserved == 42 * MiB


def test_other_settings_answer_what_if(tmp_path: Path) -> None:
    recorder = Recorder(CachingAllocator())
    for _ in range(5):
        recorder.apply(("malloc", 20 * MiB, 0))
    for _ in range(5):
        recorder.apply(("free", 0, 0))
    recorder.apply(("malloc", 100 * MiB, 0))
    snapshot = snapshot_of(recorder.document(), tmp_path)
    assert replay(snapshot).simulated_reserved == 200 * MiB
    what_if = replay(snapshot, AllocatorSettings(expandable_segments=True))
    assert what_if.recorded_reserved == 200 * MiB
    assert what_if.simulated_reserved == 100 * MiB
    assert not what_if.exact
    assert what_if.divergence is None


def test_a_release_is_followed_under_other_settings_too(tmp_path: Path) -> None:
    recorder = Recorder(CachingAllocator())
    for operation in [("malloc", 30 * MiB, 0), ("free", 0, 0), ("empty", 0, 0), ("malloc", 1, 0)]:
        recorder.apply(operation)
    result = replay(snapshot_of(recorder.document(), tmp_path), AllocatorSettings(expandable_segments=True))
    assert result.simulated_reserved == 2 * MiB


def test_an_allocator_that_chose_otherwise_is_noticed(tmp_path: Path) -> None:
    recorder = Recorder(CachingAllocator())
    recorder.apply(("malloc", 40 * MiB, 0))
    recorder.apply(("malloc", 30 * MiB, 0))
    document = recorder.document()
    alloc = document["device_traces"][0][-1]
    # As if the second request had found room in the first segment.
    document["device_traces"][0] = [
        entry
        for entry in document["device_traces"][0]
        if (entry["action"], entry["size"]) != ("segment_alloc", 30 * MiB)
    ]
    alloc["addr"] -= 10 * MiB
    document["segments"] = document["segments"][:1]
    document["segments"][0]["blocks"] = [
        {"size": 30 * MiB, "requested_size": 30 * MiB, "state": "active_allocated"},
        {"size": 10 * MiB, "requested_size": 10 * MiB, "state": "active_allocated"},
    ]
    result = replay(snapshot_of(document, tmp_path))
    assert not result.exact
    assert not result.layout_equal
    assert result.divergence is not None
    assert result.divergence.event == 2


def trace_entry(action: str, address: int, size: int) -> list[Any]:
    return [action, address, size, 0, ""]


def segment(address: int, size: int, state: str) -> dict[str, Any]:
    blocks = [{"size": size, "requested_size": size, "state": state}]
    return {"address": address, "total_size": size, "stream": 0, "segment_type": "large", "blocks": blocks}


@pytest.mark.parametrize(
    ("trace", "segments", "said"),
    [
        ([trace_entry("free_completed", 0, 20 * MiB)] * 2, [segment(0, 20 * MiB, "inactive")], "freed twice"),
        ([trace_entry("alloc", 0, 20 * MiB)] * 2, [segment(0, 20 * MiB, "active_allocated")], "allocated twice"),
        ([trace_entry("free_completed", 0, 20 * MiB)], [], "lies in no segment"),
        ([trace_entry("free_completed", 0, 20 * MiB)], [segment(0, 20 * MiB, "active_allocated")], "in use"),
        ([trace_entry("alloc", 0, 20 * MiB)], [segment(0, 20 * MiB, "inactive")], "never freed"),
        ([trace_entry("segment_alloc", 0, 20 * MiB)], [], "not there at the end"),
        ([trace_entry("segment_map", 0, 20 * MiB)], [], "without having been unmapped"),
        (
            [trace_entry("segment_alloc", 0, 20 * MiB), trace_entry("segment_free", 0, 22 * MiB)],
            [],
            "another size",
        ),
        (
            [trace_entry("free_completed", 0, 12 * MiB), trace_entry("free_completed", 10 * MiB, 5 * MiB)],
            [segment(0, 20 * MiB, "inactive")],
            "overlap",
        ),
        ([], [{**segment(0, 20 * MiB, "inactive"), "segment_pool_id": [0, 1]}], "private memory pools"),
    ],
)
def test_a_recording_that_contradicts_itself_has_no_known_start(
    tmp_path: Path, trace: list[Any], segments: list[Any], said: str
) -> None:
    result = replay(snapshot_of({"trace": trace, "segments": segments}, tmp_path))
    assert not result.starts_from_known_state
    assert said in result.reason


def test_blocks_that_wait_for_a_stream_are_still_held(tmp_path: Path) -> None:
    document = {"trace": [], "segments": [segment(0, 20 * MiB, "active_awaiting_free")]}
    snapshot = snapshot_of(document, tmp_path)
    assert snapshot.allocated == 20 * MiB
    assert replay(snapshot).simulated_peak_allocated == 20 * MiB


def test_a_failed_request_changes_nothing(tmp_path: Path) -> None:
    recorder = Recorder(CachingAllocator(capacity=50 * MiB))
    for operation in [("malloc", 30 * MiB, 0), ("malloc", 30 * MiB, 0), ("malloc", 20 * MiB, 0)]:
        recorder.apply(operation)
    assert [entry["action"] for entry in recorder.trace].count("oom") == 1
    result = replay(snapshot_of(recorder.document(), tmp_path))
    assert (result.exact, result.layout_equal, result.allocations) == (True, True, 2)
