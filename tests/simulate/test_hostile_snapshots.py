"""Files made to harm: a few bytes that stand for gigabytes. Reading them takes time and memory like their size."""

from __future__ import annotations

import contextlib
import json
import pickle
import resource
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oomcast.errors import UnreadableFile
from oomcast.simulate import read_snapshot, replay
from oomcast.simulate.recorded.plain_pickle import NotPlainData, read_plain_pickle
from oomcast.units import GiB, MiB

BASE = 0x7F0000000000
SECONDS = 10
"""Ample for a slow machine; without the limits these take minutes to forever."""


def doubled(depth: int = 60) -> list[Any]:
    """A list whose text has 2 ** depth brackets."""
    value: list[Any] = []
    for _ in range(depth):
        value = [value, value]
    return value


def segment(address: int, blocks: list[Any], size: int = 2 * MiB, **more: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "blocks": blocks,
        **more,
    }


def free_block(size: int = 2 * MiB) -> dict[str, Any]:
    return {"size": size, "state": "inactive"}


def event(action: str, address: int, size: int, stream: int = 0) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": stream}


def shared_text() -> dict[str, Any]:
    return {"segments": [], "device_traces": [[]], "source": doubled()}


def shared_action() -> dict[str, Any]:
    return {"segments": [], "device_traces": [[{"action": doubled(), "addr": 0, "size": 1, "stream": 0}]]}


def shared_state() -> dict[str, Any]:
    return {"segments": [segment(BASE, [{"size": 2 * MiB, "state": doubled()}])], "device_traces": [[]]}


def shared_frame() -> dict[str, Any]:
    frames = [{"filename": doubled(), "line": 1, "name": doubled()}]
    return {"segments": [], "device_traces": [[{**event("alloc", 0, 1), "frames": frames}]]}


def history_of_many_devices() -> dict[str, Any]:
    history = [event("alloc", BASE, 512)] * 20_000
    return {"segments": [], "device_traces": [history] * 20_000}


def event_again_and_again() -> dict[str, Any]:
    return {"segments": [], "device_traces": [[event("oom", 0, 1)] * 300_000]}


def segment_again_and_again() -> dict[str, Any]:
    blocks = [free_block(512) for _ in range(4096)]
    return {"segments": [segment(BASE, blocks)] * 100_000, "device_traces": [[]]}


def blocks_of_many_segments() -> dict[str, Any]:
    blocks = [free_block(512) for _ in range(4096)]
    return {"segments": [segment(BASE + n * 2 * MiB, blocks) for n in range(20_000)], "device_traces": [[]]}


def pool_of_many_segments() -> dict[str, Any]:
    pool = [0] * 100_000
    segments = [segment(BASE + n * 2 * MiB, [free_block()], segment_pool_id=pool) for n in range(2_000)]
    return {"segments": segments, "device_traces": [[]]}


def numbers_without_end() -> dict[str, Any]:
    settings = {"garbage_collection_threshold": 10**120, "roundup_power2_divisions": {"1": 1e999}}
    return {"segments": [], "device_traces": [[]], "allocator_settings": settings}


UNREADABLE = [
    shared_text,
    shared_action,
    shared_state,
    shared_frame,
    event_again_and_again,
    segment_again_and_again,
    blocks_of_many_segments,
    numbers_without_end,
]


def terabytes_mapped() -> dict[str, Any]:
    events = [event("segment_map", BASE + n * 1024 * GiB, 1024 * GiB) for n in range(2_000)]
    return {"segments": [], "device_traces": [events]}


def terabytes_mapped_and_unmapped() -> dict[str, Any]:
    kinds = ("segment_map", "segment_unmap")
    return {"segments": [], "device_traces": [[event(kinds[n % 2], BASE, 1024 * GiB) for n in range(2_000)]]}


def memory_of_nobody_unmapped() -> dict[str, Any]:
    events = [event("segment_unmap", BASE + n * 200 * MiB, 20 * MiB) for n in range(20_000)]
    return {"segments": [], "device_traces": [events]}


def a_stream_for_every_page() -> dict[str, Any]:
    pages = [segment(BASE + n * 4 * MiB, [free_block()], is_expandable=True, stream=n) for n in range(5_000)]
    return {"segments": pages, "device_traces": [[event("oom", 0, 1)] * 1_000]}


def blocks_side_by_side() -> dict[str, Any]:
    """Blocks a byte apart, all freed and never allocated, beside as many that were."""
    frees = [event("free_completed", BASE + n, 512) for n in range(0, 10_000, 2)]
    allocated = [event("alloc", BASE + n, 512) for n in range(1, 10_000, 2)]
    space = [segment(BASE, [free_block(64 * MiB)], 64 * MiB)]
    return {"segments": space, "device_traces": [[*frees, *allocated, event("segment_free", BASE, 64 * MiB)]]}


STRANGE = [
    history_of_many_devices,
    pool_of_many_segments,
    terabytes_mapped,
    terabytes_mapped_and_unmapped,
    memory_of_nobody_unmapped,
    a_stream_for_every_page,
    blocks_side_by_side,
]


def written(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(document))
    return path


@pytest.mark.parametrize("made", UNREADABLE)
def test_what_repeats_itself_is_refused_at_once(tmp_path: Path, made: Callable[[], dict[str, Any]]) -> None:
    path = written(tmp_path, made())
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(UnreadableFile):
        read_snapshot(path)
    assert time.process_time() - started < SECONDS
    assert tracemalloc.get_traced_memory()[1] < 100 * path.stat().st_size + 16 * MiB
    tracemalloc.stop()


@pytest.mark.parametrize("made", STRANGE)
def test_what_no_device_did_is_replayed_or_refused_soon(tmp_path: Path, made: Callable[[], dict[str, Any]]) -> None:
    path = written(tmp_path, made())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with contextlib.suppress(UnreadableFile):
        replay(read_snapshot(path))
    assert time.process_time() - started < SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 1 * GiB


def test_numbers_of_400_digits_are_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    for name in ("address", "total_size", "stream"):
        document = {"segments": [segment(BASE, [free_block()]) | {name: 10**400}], "device_traces": [[]]}
        path.write_text(json.dumps(document))
        with pytest.raises(UnreadableFile):
            read_snapshot(path)
    settings = {"garbage_collection_threshold": 10**400, "max_split_size": 10**400}
    path.write_text(json.dumps({"segments": [], "device_traces": [[]], "allocator_settings": settings}))
    with pytest.raises(UnreadableFile):
        read_snapshot(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04N" + b"\x94" * 100_000 + b".",  # remembered again and again
        b"\x80\x04]\x94(" + b"]" * 100_000 + b"e.",
    ],
)
def test_a_byte_makes_no_list_of_its_own(data: bytes) -> None:
    with pytest.raises(NotPlainData, match="more lists than its size allows"):
        read_plain_pickle(data)
