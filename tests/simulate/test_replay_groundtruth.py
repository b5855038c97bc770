"""The allocator against recordings of the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oomcast.simulate import AllocatorSettings, read_snapshot, replay

ROOT = Path(__file__).resolve().parents[2]
GROUNDTRUTH = Path(os.environ.get("OOMCAST_GROUNDTRUTH", ROOT.parent / "shared" / "groundtruth"))
SNAPSHOTS = sorted((GROUNDTRUTH / "snapshots").glob("*.json.gz"))

pytestmark = [
    pytest.mark.groundtruth,
    pytest.mark.skipif(not SNAPSHOTS, reason=f"no recordings under {GROUNDTRUTH}"),
]


@pytest.mark.parametrize("path", SNAPSHOTS, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_every_recording_replays_to_the_byte(path: Path) -> None:
    result = replay(read_snapshot(path))
    assert result.starts_from_known_state, result.reason
    assert result.divergence is None
    assert result.simulated_reserved == result.recorded_reserved
    assert result.simulated_peak_reserved == result.recorded_peak_reserved
    assert result.addresses_equal == result.allocations
    assert result.layout_equal
    assert result.exact


def test_the_full_step_of_a_2_7b_model_reserves_what_was_recorded() -> None:
    path = GROUNDTRUTH / "snapshots" / "kkaitlyn_memory_ctx128_fullstep.json.gz"
    result = replay(read_snapshot(path))
    assert result.simulated_reserved == 61_111_009_280
    assert result.allocations == 6_771


def test_expandable_segments_would_have_held_less() -> None:
    path = GROUNDTRUTH / "snapshots" / "wedsonlin_medium_512_training.json.gz"
    snapshot = read_snapshot(path)
    what_if = replay(snapshot, AllocatorSettings(expandable_segments=True))
    assert what_if.simulated_peak_allocated <= what_if.simulated_reserved


@pytest.mark.parametrize(("kind", "workspaces"), [("training", 2), ("inference", 1)])
def test_training_holds_one_cublas_workspace_per_thread(kind: str, workspaces: int) -> None:
    for path in SNAPSHOTS:
        if path.name.startswith("wedsonlin") and kind in path.name:
            blocks = [block for segment in read_snapshot(path).segments for block in segment.blocks]
            assert sum(block.live and block.requested == 8_519_680 for block in blocks) == workspaces
