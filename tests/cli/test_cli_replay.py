"""`oomcast replay`: recorded snapshots, and files that are none."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest

from oomcast.cli import main


class Evil:
    """Would make a file if its pickle were executed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.path,))


def recording() -> dict[str, object]:
    """4 MiB taken and freed, then 6 MiB: both from one 20 MiB segment."""
    base, mib = 0x7F0000000000, 1 << 20
    return {
        "segments": [
            {
                "device": 0,
                "address": base,
                "total_size": 20 * mib,
                "stream": 0,
                "segment_type": "large",
                "allocated_size": 6 * mib,
                "active_size": 6 * mib,
                "is_expandable": False,
                "blocks": [
                    {"address": base, "size": 6 * mib, "requested_size": 6 * mib, "state": "active_allocated"},
                    {"address": base + 6 * mib, "size": 14 * mib, "requested_size": 0, "state": "inactive"},
                ],
            }
        ],
        "device_traces": [
            [
                {"action": "segment_alloc", "addr": base, "size": 20 * mib, "stream": 0, "frames": []},
                {"action": "alloc", "addr": base, "size": 4 * mib, "stream": 0, "frames": []},
                {"action": "free_requested", "addr": base, "size": 4 * mib, "stream": 0, "frames": []},
                {"action": "free_completed", "addr": base, "size": 4 * mib, "stream": 0, "frames": []},
                {"action": "alloc", "addr": base, "size": 6 * mib, "stream": 0, "frames": []},
            ]
        ],
        "allocator_settings": {},
    }


def test_a_recorded_pickle_is_replayed_exactly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(recording()))
    assert main(["replay", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["recorded_reserved"] == result["simulated_reserved"] == 20 * 2**20
    assert result["exact"] is True
    assert result["starts_from_known_state"] is True
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.startswith("EXACT ")


def test_a_what_if_changes_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(recording()))
    assert main(["replay", str(path), "--json", "--alloc-conf", "roundup_power2_divisions:1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["settings"]["roundup_power2_divisions"]


@pytest.mark.parametrize("kind", ["hostile", "truncated", "garbage", "empty", "json", "gzip", "missing"])
def test_files_that_are_no_snapshots(tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, trap = tmp_path / "snapshot.pickle", tmp_path / "executed"
    whole = pickle.dumps(recording())
    contents = {
        "hostile": pickle.dumps(Evil(trap)),
        "truncated": whole[: len(whole) // 2],
        "garbage": b"\x80\x04 not a pickle at all" * 9,
        "empty": b"",
        "json": b'{"segments": "none"}',
        "gzip": gzip.compress(b"{", mtime=0)[:-4],
    }
    if kind in contents:
        path.write_bytes(contents[kind])
    assert main(["replay", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("oomcast: ")
    assert len(captured.err.strip().splitlines()) == 1
    assert not trap.exists()
