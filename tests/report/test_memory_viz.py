"""A prediction in the form of torch's snapshots: torch's own viewers read it, and so does our replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from estimate_builder import Job, estimated, training

from oomcast.errors import BadInput
from oomcast.estimation import Estimate
from oomcast.report import snapshot_as_pickle, snapshot_of
from oomcast.simulate import AllocatorSettings, BfcSettings, History, read_snapshot, record_history, replay
from oomcast.trace import Category
from oomcast.units import GiB, MiB

SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:64,large_segment_size_mb:40"]


def history_of(estimate: Estimate) -> History:
    assert estimate.history is not None
    return estimate.history


@pytest.mark.parametrize("alloc_conf", SETTINGS)
def test_replaying_the_prediction_gives_the_same_bytes(tmp_path: Path, alloc_conf: str) -> None:
    estimate = estimated(training(6, 3, width=7 * MiB), alloc_conf=alloc_conf or None)
    path = tmp_path / "prediction.pickle"
    path.write_bytes(snapshot_as_pickle(history_of(estimate)))
    told = read_snapshot(path)
    assert told.settings == (AllocatorSettings.parse(alloc_conf) if alloc_conf else AllocatorSettings())
    result = replay(told)
    assert result.exact
    assert result.starts_from_known_state
    assert result.layout_equal
    assert result.addresses_equal == result.allocations > 0
    assert result.recorded_peak_reserved == result.simulated_peak_reserved == estimate.peak_reserved
    assert result.simulated_peak_allocated == estimate.peak_allocated


def test_a_prediction_that_had_to_release_its_cache_replays_too(tmp_path: Path) -> None:
    job = Job()
    job.give_back(job.take(30 * MiB, Category.TEMPORARY))
    job.take(50 * MiB, Category.ACTIVATION)
    history = record_history(job.trace(), capacity=60 * MiB)
    assert "segment_free" in {action.kind.value for action in history.actions}
    path = tmp_path / "tight.pickle"
    path.write_bytes(snapshot_as_pickle(history))
    result = replay(read_snapshot(path))
    assert result.exact
    assert result.recorded_reserved == 50 * MiB


def test_torchs_own_viewers_read_it() -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    data = snapshot_of(history_of(estimated(training(width=40 * MiB))))
    reserved = sum(segment["total_size"] for segment in data["segments"])
    assert f"total_reserved: {viz.Bytes(reserved)}" in viz.segsum(data)
    assert f"{len(data['device_traces'][0])} entries" in viz.trace(data)
    assert "cudaMalloc" in viz.trace(data)
    for draw in (viz.trace_plot, viz.segment_plot):
        assert "<script" in draw(data)
    # The others hand their lines to a Perl script that torch fetches from the network; here they are read as they are.
    assert "blocks.0.linear.weight" in viz.memory(data, format_flamegraph=str)
    assert f"seg_{data['segments'][0]['address']}" in viz.segments(data, format_flamegraph=str)
    assert viz.compare(data["segments"], data["segments"], format_flamegraph=str) == ""
    assert "only_after" in viz.compare([], data["segments"], format_flamegraph=str)


def test_stacks_tell_line_module_and_purpose() -> None:
    data = snapshot_of(history_of(estimated(training())))
    made: list[dict[str, Any]] = [entry for entry in data["device_traces"][0] if entry["action"] == "alloc"]
    stacks = [[(f["filename"], f["line"], f["name"]) for f in entry["frames"]] for entry in made]
    assert [
        ("/home/user/model.py", 1, "aten.mm"),
        ("module", 0, "blocks.1.linear"),
        ("forward of step 1", 0, "activation"),
    ] in stacks
    assert [("workspace", 0, "cuBLAS, main thread")] in stacks
    assert all(frames for frames in stacks)


def test_every_free_is_asked_for_and_done() -> None:
    data = snapshot_of(history_of(estimated(training())))
    actions = [(entry["action"], entry["addr"]) for entry in data["device_traces"][0]]
    done = [number for number, (action, _) in enumerate(actions) if action == "free_completed"]
    assert done
    assert all(actions[number - 1] == ("free_requested", actions[number][1]) for number in done)


def test_other_allocators_have_no_such_snapshot() -> None:
    history = record_history(training().trace(), settings=BfcSettings())
    with pytest.raises(BadInput, match="torch's allocator"):
        snapshot_of(history)


def test_a_line_that_is_none_is_told_as_it_is() -> None:
    job = training(1, source=lambda n: "<stdin>" if n == 0 else "")
    data = snapshot_of(history_of(estimated(job)))
    names = {frame["filename"] for entry in data["device_traces"][0] for frame in entry["frames"]}
    assert "<stdin>" in names


def test_the_device_matters_not_to_the_form() -> None:
    oom = estimated(training(4, width=3 * GiB), device="rtx-3060")
    assert not oom.fits
    assert sum(segment["total_size"] for segment in snapshot_of(history_of(oom))["segments"]) > 0
