from __future__ import annotations

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from oomcast.errors import BadInput, UnreadableFile
from oomcast.simulate import BlockState, Frame, RecordedEvent, read_snapshot, replay
from oomcast.units import MiB


def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": []}


def entry(action: str, address: int, size: int, **more: Any) -> dict[str, Any]:
    frames = [{"filename": "train.py", "line": 12, "name": "step"}]
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames, "time_us": 1, **more}


def torch_document() -> dict[str, Any]:
    """What `torch.cuda.memory._dump_snapshot` pickles, for two devices of which the second is used."""
    base = 0x7F0000000000
    segment = {
        "device": 1,
        "address": base,
        "total_size": 2 * MiB,
        "allocated_size": 1024,
        "active_size": 1024,
        "requested_size": 1000,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [
            block(base, 512, 4, "inactive"),
            block(base + 512, 1024, 1000, "active_allocated"),
            block(base + 1536, 2 * MiB - 1536, 0, "inactive"),
        ],
    }
    trace = [
        entry("segment_alloc", base, 2 * MiB),
        entry("alloc", base, 4),
        entry("alloc", base + 512, 1000),
        entry("free_requested", base, 4),
        entry("free_completed", base, 4),
        {"action": "oom", "device_free": 123, "size": 1 << 35, "stream": 0, "frames": []},
        {"action": "snapshot", "addr": 0, "size": 1024, "stream": 0, "time_us": 2},
    ]
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
    return {
        "segments": [segment],
        "device_traces": [[], trace],
        "allocator_settings": settings,
        "external_annotations": [],
    }


@pytest.mark.parametrize("suffix", ["pickle", "pickle.gz", "json", "json.gz"])
def test_torchs_snapshot_is_read_from_pickle_and_json(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"snapshot.{suffix}"
    document = torch_document()
    data = pickle.dumps(document) if suffix.startswith("pickle") else json.dumps(document).encode()
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    snapshot = read_snapshot(path)
    assert snapshot.device == 1
    assert (snapshot.reserved, snapshot.allocated) == (2 * MiB, 1024)
    assert snapshot.events[1] == RecordedEvent("alloc", 0x7F0000000000, 4, 0, (Frame("train.py", 12, "step"),))
    assert snapshot.events[5] == RecordedEvent("oom", 123, 1 << 35, 0)
    assert snapshot.segments[0].blocks[1] == BlockState(0x7F0000000200, 1024, True, 1000)
    assert snapshot.segments[0].is_small
    assert not snapshot.has_private_pools
    result = replay(snapshot)
    assert (result.exact, result.layout_equal, result.starts_from_known_state) == (True, True, True)


def test_a_device_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(torch_document()))
    assert read_snapshot(path, device=0).events == ()
    assert read_snapshot(path, device=0).segments == ()
    with pytest.raises(BadInput, match="2 devices"):
        read_snapshot(path, device=2)


def test_the_re_encoded_form_is_read(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    document = torch_document()
    events = [[e["action"], e.get("addr", 0), e["size"], 0, "train.py:12:step"] for e in document["device_traces"][1]]
    path.write_text(
        json.dumps({"source": "a repo", "allocator_settings": None, "segments": document["segments"], "trace": events})
    )
    snapshot = read_snapshot(path)
    assert snapshot.reserved == 2 * MiB
    assert (snapshot.source, len(snapshot.events)) == ("a repo", 7)


def test_blocks_without_addresses_lie_end_to_end(tmp_path: Path) -> None:
    document = torch_document()
    for told in document["segments"][0]["blocks"]:
        del told["address"]
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(document))
    assert [told.address - 0x7F0000000000 for told in read_snapshot(path).segments[0].blocks] == [0, 512, 1536]


def damage(**changes: Any) -> dict[str, Any]:
    document = torch_document()
    document["segments"][0].update(changes)
    return document


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"segments": {}},
        {"segments": []},
        {"segments": [], "trace": [["alloc", 1]]},
        {"segments": [], "trace": [["alloc", -1, 5, 0]]},
        {"segments": [], "trace": [["alloc", 0, 1 << 60, 0]]},
        {"segments": [], "trace": [["alloc", "0", 5, 0]]},
        {"segments": [], "device_traces": [{"action": "alloc"}]},
        {"segments": [5], "trace": []},
        damage(total_size=4 * MiB),
        damage(blocks=[{"size": 0, "state": "inactive"}]),
        damage(address="0x7f0000000000"),
        {**torch_document(), "segments": torch_document()["segments"] * 2},
    ],
)
def test_what_is_not_a_snapshot_is_refused_in_one_sentence(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UnreadableFile) as caught:
        read_snapshot(path)
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith(".")


class Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def test_a_hostile_pickle_is_refused_unexecuted(tmp_path: Path) -> None:
    target, path = tmp_path / "ran", tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({**torch_document(), "more": Runs(target)}))
    with pytest.raises(UnreadableFile, match="more than plain data"):
        read_snapshot(path)
    assert not target.exists()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a snapshot",
        b"\x80\x04\x95",
        gzip.compress(b"{}", mtime=0)[:-9],
        b"\x1f\x8b" + b"garbage",
        b"[" * 100_000,
        b"\xff\xfe{}",
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "snapshot.json.gz"
    path.write_bytes(data)
    with pytest.raises(UnreadableFile):
        read_snapshot(path)


def test_a_file_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json.gz"
    path.write_bytes(gzip.compress(b" " * (32 * MiB)))
    with pytest.raises(UnreadableFile, match="unpacks to more"):
        read_snapshot(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="nowhere"):
        read_snapshot(tmp_path / "nowhere.pickle")
