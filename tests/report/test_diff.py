"""Two estimates, or a prediction and a recording: the parts of the difference add up to it."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from estimate_builder import estimated, training
from rich.console import Console

from oomcast.errors import UnreadableFile
from oomcast.estimation import Estimate
from oomcast.report import (
    compare,
    difference_as_json,
    difference_html,
    estimate_as_json,
    read_side,
    render_difference,
    snapshot_as_pickle,
    snapshot_of,
)
from oomcast.units import MiB


@pytest.fixture(scope="module")
def small() -> Estimate:
    return estimated(training(3, width=5 * MiB))


@pytest.fixture(scope="module")
def large() -> Estimate:
    return estimated(training(4, width=7 * MiB))


def as_json(estimate: Estimate, path: Path) -> str:
    path.write_text(json.dumps(estimate_as_json(estimate)))
    return str(path)


def as_snapshot(estimate: Estimate, path: Path) -> str:
    assert estimate.history is not None
    path.write_bytes(snapshot_as_pickle(estimate.history))
    return str(path)


def shown(renderable: Any) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(renderable)
    return console.export_text()


def test_categories_and_modules_of_two_estimates_add_up(tmp_path: Path, small: Estimate, large: Estimate) -> None:
    found = compare(read_side(as_json(small, tmp_path / "a")), read_side(as_json(large, tmp_path / "b")))
    assert found.main.name == "Device total"
    assert found.main.bytes == large.device_total - small.device_total
    assert sum(change.bytes for change in found.categories) == found.main.bytes
    allocated = large.peak_allocated - small.peak_allocated
    assert sum(change.bytes for change in found.modules) == allocated
    assert {"blocks.0", "blocks.3", "outside of any module"} <= {change.name for change in found.modules}
    assert [abs(c.bytes) for c in found.categories] == sorted((abs(c.bytes) for c in found.categories), reverse=True)


def test_depth_says_how_far_modules_are_told_apart(tmp_path: Path, small: Estimate, large: Estimate) -> None:
    sides = read_side(as_json(small, tmp_path / "a")), read_side(as_json(large, tmp_path / "b"))
    assert {change.name for change in compare(*sides, depth=1).modules} == {"blocks", "outside of any module"}
    assert "blocks.0.linear.weight" in {change.name for change in compare(*sides, depth=9).modules}


def test_what_was_asked_differently_is_told(tmp_path: Path, small: Estimate) -> None:
    other = estimate_as_json(small)
    other["workload"] = {**other["workload"], "batch_size": 64}
    (tmp_path / "b").write_text(json.dumps(other))
    found = compare(read_side(as_json(small, tmp_path / "a")), read_side(str(tmp_path / "b")))
    assert found.settings == (("batch size", "2", "64"),)
    assert "is the same" in found.sentence()


def test_two_snapshots_differ_by_size_and_line(tmp_path: Path, small: Estimate, large: Estimate) -> None:
    found = compare(read_side(as_snapshot(small, tmp_path / "a")), read_side(as_snapshot(large, tmp_path / "b")))
    assert found.main.name == "Reserved"
    assert found.main.bytes == large.peak_reserved - small.peak_reserved
    assert found.totals[0].bytes == large.peak_allocated - small.peak_allocated
    assert sum(change.bytes for change in found.categories) == found.main.bytes
    by_size = {change.name: change for change in found.sizes}
    assert large.history is not None
    count = sum(action.requested == 7 * MiB for action in large.history.live_at_peak())
    assert count > 4
    assert by_size[f"0 → {count} of 7.0 MiB"].note.startswith("blocks.")
    assert {change.name for change in found.lines} >= {"user/model.py:3", "no line"}
    assert sum(c.bytes for c in found.lines) == sum(c.bytes for c in found.sizes)


def test_a_prediction_against_a_recording_of_the_same_run(tmp_path: Path, small: Estimate) -> None:
    """A recording has other stacks than ours, begins anywhere, and may be JSON in gzip."""
    assert small.history is not None
    recorded = snapshot_of(small.history)
    frames = [{"filename": "/home/user/train.py", "line": 7, "name": "step"}]
    torchs = [{"filename": "/x/torch/nn/module.py", "line": 1, "name": "call"}]
    for entry in recorded["device_traces"][0]:
        entry["frames"] = [*torchs, *frames]
    path = tmp_path / "recorded.json.gz"
    path.write_bytes(gzip.compress(json.dumps(recorded).encode()))
    side = read_side(str(path))
    assert (side.peak_allocated, side.peak_reserved) == (small.peak_allocated, small.peak_reserved)
    assert {block.line for block in side.blocks} == {"/home/user/train.py:7"}
    found = compare(read_side(as_snapshot(small, tmp_path / "predicted")), side)
    assert found.main.bytes == 0
    assert found.sizes == ()
    assert found.categories == ()  # the recording knows none
    assert found.lines[0].name == "user/train.py:7"


def test_a_recording_that_begins_in_the_middle_keeps_what_it_found(tmp_path: Path, small: Estimate) -> None:
    assert small.history is not None
    recorded = snapshot_of(small.history)
    entries = recorded["device_traces"][0]
    first = next(n for n, entry in enumerate(entries) if entry["action"] == "free_completed")
    recorded["device_traces"][0] = entries[first + 1 :]
    path = tmp_path / "late.pickle"
    path.write_bytes(pickle.dumps(recorded))
    whole = read_side(as_snapshot(small, tmp_path / "whole"))
    late = read_side(str(path))
    assert sorted(block.size for block in late.blocks) == sorted(block.size for block in whole.blocks)


def test_an_estimate_against_a_snapshot_compares_what_both_have(tmp_path: Path, small: Estimate) -> None:
    found = compare(read_side(as_json(small, tmp_path / "a")), read_side(as_snapshot(small, tmp_path / "b")))
    assert [change.name for change in found.totals] == ["Allocated", "Reserved"]
    assert all(change.bytes == 0 for change in found.totals)
    assert "context" not in {change.name for change in found.categories}
    assert "--snapshot" in shown(render_difference(found))


def test_text_json_and_page_tell_the_same(tmp_path: Path, small: Estimate, large: Estimate) -> None:
    found = compare(read_side(as_json(small, tmp_path / "a<b>")), read_side(as_json(large, tmp_path / "b")))
    text, plain, page = shown(render_difference(found)), difference_as_json(found), difference_html(found)
    assert plain["sentence"] in text.replace("\n", "")
    assert plain["totals"][-1]["change"] == found.main.bytes
    assert f'value="{large.device_total}"' in page
    assert "a&lt;b&gt;" in page
    assert "<b>a" not in page


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"hello", "neither a pickle nor JSON"),
        (b"{}", "neither what oomcast estimate --json prints nor a memory snapshot"),
        (b'{"peak_allocated": 1}', "neither what oomcast estimate"),
        (b'{"peak_allocated": ', "begins like JSON, but is not"),
        (b"[1, 2]", "lists no segments"),
        (b'{"segments": 3}', "lists no segments"),
        (pickle.dumps({"segments": [1]}), "damaged"),
        (pickle.dumps(Path("x")), "read safely"),
        (b"\x1f\x8b\x08", "damaged|truncated"),
        (b"", "neither"),
    ],
)
def test_what_is_neither_is_refused_in_a_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=words):
        read_side(str(path))


def test_wrong_kinds_of_values_are_refused(tmp_path: Path, small: Estimate) -> None:
    for name, value in (("device_total", "many"), ("peak_reserved", -1), ("breakdown", {"context": 1.5})):
        path = tmp_path / name
        path.write_text(json.dumps({**estimate_as_json(small), name: value}))
        with pytest.raises(UnreadableFile, match="neither what"):
            read_side(str(path))
    with pytest.raises(UnreadableFile, match="No such file"):
        read_side(str(tmp_path / "missing"))
    with pytest.raises(UnreadableFile, match="is a folder"):
        read_side(str(tmp_path))


GROUNDTRUTH = Path(
    os.environ.get("OOMCAST_GROUNDTRUTH", Path(__file__).resolve().parents[3] / "shared" / "groundtruth")
)
RECORDINGS = sorted((GROUNDTRUTH / "snapshots").glob("*training.json.gz"))


@pytest.mark.groundtruth
@pytest.mark.skipif(len(RECORDINGS) < 2, reason=f"no recordings under {GROUNDTRUTH}")
def test_recordings_of_real_runs_differ_by_blocks_that_add_up() -> None:
    first, second = (read_side(str(path)) for path in RECORDINGS[:2])
    found = compare(first, second)
    for side in (first, second):
        held = sum(block.size for block in side.blocks)
        assert held == pytest.approx(side.peak_allocated, rel=0.02)  # the rest is rounded up in blocks not split
    assert sum(c.bytes for c in found.sizes) == sum(b.size for b in second.blocks) - sum(b.size for b in first.blocks)
