"""What users bring from a real run, read with care."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from oomcast.devices import find_gpu
from oomcast.errors import BadInput, UnreadableFile
from oomcast.estimation.readings import check_gpu, from_memory_stats, from_nvidia_smi, from_snapshot
from oomcast.units import GiB, MiB

GPU = find_gpu("rtx-3090")
FLAT = {"allocated_bytes.all.peak": 3 * GiB, "reserved_bytes.all.peak": 4 * GiB, "num_ooms": 0}
NESTED = {"allocated_bytes": {"all": {"peak": 3 * GiB}}, "reserved_bytes": {"all": {"peak": 4 * GiB}}}


@pytest.mark.parametrize("size", ["21345MiB", "21345 MiB", "21345", 21345, "  21345mib "])
def test_nvidia_smis_figure(size: str | int) -> None:
    reading = from_nvidia_smi(size)
    assert reading.device_total == 21345 * MiB
    assert reading.reserved is None
    assert from_nvidia_smi("20.5GiB").device_total == 20.5 * GiB


@pytest.mark.parametrize("size", ["", "many", "0", "-5", "21345 apples", "0MiB"])
def test_figures_that_are_none(size: str) -> None:
    with pytest.raises(BadInput, match=r"like|figure"):
        from_nvidia_smi(size)


@pytest.mark.parametrize(
    "content", [FLAT, NESTED, {"memory_stats": FLAT}, {"memory_stats": NESTED, "device_name": "RTX 3090"}]
)
def test_memory_statistics_in_all_forms(tmp_path: Path, content: dict[str, Any]) -> None:
    path = tmp_path / "stats.json"
    path.write_text(json.dumps(content))
    reading = from_memory_stats(path, GPU)
    assert (reading.allocated, reading.reserved, reading.device_total) == (3 * GiB, 4 * GiB, None)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "not JSON"),
        ("[]", "an object is expected"),
        ("{}", r"does not tell allocated_bytes\.all\.peak"),
        (json.dumps({"memory_stats": 3}), "does not tell"),
        (json.dumps({**FLAT, "reserved_bytes.all.peak": "4 GiB"}), r"does not tell reserved_bytes\.all\.peak"),
        (json.dumps({**FLAT, "reserved_bytes.all.peak": 0}), "does not tell"),
        (json.dumps({**FLAT, "reserved_bytes.all.peak": GiB}), "more bytes allocated than reserved"),
        (json.dumps({"reserved_bytes": {"all": 3}, "allocated_bytes.all.peak": 1}), "does not tell"),
    ],
)
def test_files_that_are_no_statistics(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "stats.json"
    path.write_text(content)
    with pytest.raises(UnreadableFile, match=sentence):
        from_memory_stats(path, GPU)
    with pytest.raises(UnreadableFile, match="cannot read"):
        from_memory_stats(tmp_path / "nowhere", GPU)


def test_statistics_of_another_gpu(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text(json.dumps({"memory_stats": FLAT, "device_name": "NVIDIA A100-SXM4-40GB"}))
    with pytest.raises(BadInput, match="not from a rtx-3090; give --device a100"):
        from_memory_stats(path, GPU)
    path.write_text(json.dumps({"memory_stats": FLAT, "device_name": "Some GPU", "total_memory": 40 * GiB}))
    with pytest.raises(BadInput, match=r"from a GPU of 40\.00 GiB"):
        from_memory_stats(path, GPU)


def test_a_name_that_several_sizes_share() -> None:
    check_gpu(find_gpu("a100-80gb"), "a100", find_gpu("a100-80gb").total_memory, "it")
    with pytest.raises(BadInput, match="from a GPU of"):
        check_gpu(find_gpu("a100-80gb"), "a100", find_gpu("a100-40gb").total_memory, "it")


def segment(address: int, size: int, live: bool) -> dict[str, Any]:
    state = "active_allocated" if live else "inactive"
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "blocks": [{"address": address, "size": size, "requested_size": size, "state": state}],
    }


def snapshot(tmp_path: Path, events: list[tuple[str, int, int]], segments: list[dict[str, Any]]) -> Path:
    path = tmp_path / "snapshot.pickle"
    history = [{"action": a, "addr": at, "size": size, "stream": 0} for a, at, size in events]
    path.write_bytes(pickle.dumps({"segments": segments, "device_traces": [history]}))
    return path


def test_a_snapshot_tells_the_most_that_was_reserved(tmp_path: Path) -> None:
    base = 1 << 40
    events = [
        ("segment_alloc", base, 100 * MiB),
        ("segment_alloc", base + GiB, 300 * MiB),
        ("alloc", base, 50 * MiB),
        ("segment_free", base + GiB, 300 * MiB),
        ("segment_alloc", base + 2 * GiB, 40 * MiB),
    ]
    kept = [segment(base, 100 * MiB, True), segment(base + 2 * GiB, 40 * MiB, False)]
    reading = from_snapshot(snapshot(tmp_path, events, kept))
    assert reading.reserved == 400 * MiB
    assert reading.allocated is None
    assert reading.settings is not None


def test_an_empty_snapshot_tells_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no memory"):
        from_snapshot(snapshot(tmp_path, [], []))
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04no")
    with pytest.raises(UnreadableFile):
        from_snapshot(tmp_path / "snapshot.pickle")
