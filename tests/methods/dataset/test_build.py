"""Whole builds: labels are the simulator's, and a build that is killed loses and doubles nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from row_builder import QuickLabeller

from oomcast.errors import BadInput, CaptureFailed, UnknownName
from oomcast.estimation import estimate
from oomcast.methods.gpumemnet.dataset import Settings, build_dataset, labelling, read_dataset
from oomcast.methods.gpumemnet.dataset import build as building
from oomcast.methods.gpumemnet.dataset.build import journal_path
from oomcast.methods.gpumemnet.dataset.network import size_of
from oomcast.methods.gpumemnet.dataset.rows import row_id
from oomcast.units import MiB


@pytest.fixture(autouse=True)
def _no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It pays for hundreds of rows, not for three."""
    monkeypatch.setattr(labelling, "_load_framework", lambda: None)


def tiny(rows: int = 3, **changes: Any) -> Settings:
    """Of one layer, mostly: quick to capture."""
    options = {"kinds": ["mlp"], "architectures": ["uniform"], "most_bytes": 64 * MiB, "device": "rtx-3090", **changes}
    return Settings.create(rows, **options)


def test_a_build_from_start_to_file(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    told: list[tuple[str, int, int]] = []
    built = build_dataset(path, tiny(), processes=1, on_progress=lambda *words: told.append(words))
    assert len({row.id for row in built.rows}) == 3
    assert read_dataset(path) == built
    assert not journal_path(path).exists()
    assert told[-1] == ("labelling", 3, 3)
    assert built.metadata["failed"] == {}
    assert built.metadata["uniformity"]["strata"] == {"mlp uniform": 3}
    assert built.metadata["settings"]["device"] == "rtx-3090"
    row = built.rows[0]
    alone = estimate(
        row.job, batch_size=row.network.batch_size, device="rtx-3090", optimizer="adam", steps=2, use_calibration=False
    )
    assert (row.label.peak_allocated, row.label.peak_reserved, row.label.device_total) == (
        alone.peak_allocated, alone.peak_reserved, alone.device_total,
    )  # fmt: skip
    assert row.label.outcome == "fits"
    assert row.features is not None
    assert row.simulator is not None
    assert row.features.parameters == pytest.approx(size_of(row.network).parameters, rel=0.01)
    assert row.features.counts["linear"] == row.network.depth + 1
    # Given again, it is there.
    assert build_dataset(path, tiny(), processes=1) == built
    with pytest.raises(BadInput, match="exists and was built with other settings"):
        build_dataset(path, tiny(seed=1), processes=1)


def test_a_network_too_large_for_the_device_is_oom(tmp_path: Path) -> None:
    built = build_dataset(tmp_path / "data.csv", tiny(2, device="600MiB", most_bytes=700 * MiB), processes=1)
    totals = {row.label.outcome: row.label.device_total or 0 for row in built.rows}
    assert totals["fits"] < 600 * MiB < totals["oom"]


class Interrupted(QuickLabeller):
    """Stops after some rows, as Ctrl-C would."""

    left = 0

    def __call__(self, given: Any) -> Any:
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        Interrupted.left -= 1
        return super().__call__(given)


def test_what_was_labelled_is_not_labelled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.csv"
    monkeypatch.setattr(building, "Labeller", Interrupted)
    Interrupted.left = 2
    with pytest.raises(KeyboardInterrupt):
        build_dataset(path, tiny(), processes=1)
    assert not path.exists()
    with pytest.raises(BadInput, match=r"unfinished build with other settings: rows 3, not 4"):
        build_dataset(path, tiny(4), processes=1)
    Interrupted.left = 1  # for the one that is missing
    resumed = build_dataset(path, tiny(), processes=1)
    Interrupted.left = 3
    assert resumed == build_dataset(tmp_path / "whole.csv", tiny(), processes=1)
    Interrupted.left = 3
    assert build_dataset(path, tiny(), processes=1, restart=True) == resumed
    assert Interrupted.left == 0


class FailsOnce(QuickLabeller):
    """The first row is killed, the second stops the build."""

    asked = 0

    def __call__(self, given: Any) -> Any:
        FailsOnce.asked += 1
        if FailsOnce.asked == 1:
            return row_id(given[0]), {"error": "the capture was killed."}
        if FailsOnce.asked == 2:
            raise KeyboardInterrupt
        return super().__call__(given)


def test_what_failed_is_tried_again_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "Labeller", FailsOnce)
    told: list[tuple[str, int, int]] = []
    with pytest.raises(KeyboardInterrupt):
        build_dataset(tmp_path / "data.csv", tiny(), processes=1)
    built = build_dataset(tmp_path / "data.csv", tiny(), processes=1, on_progress=lambda *words: told.append(words))
    assert len(built.rows) == 3
    assert built.metadata["failed"] == {}
    assert [done for what, done, _ in told if what == "labelling"] == [0, 1, 2, 3]


def test_rows_that_cannot_be_labelled_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise CaptureFailed("torch ended the capture process.")

    monkeypatch.setattr(labelling, "capture", failing)
    with pytest.raises(CaptureFailed, match="not one of 2 networks could be labelled: torch ended"):
        build_dataset(tmp_path / "data.csv", tiny(2), processes=1)
    real = labelling.estimate_trace
    monkeypatch.undo()
    monkeypatch.setattr(labelling, "_load_framework", lambda: None)
    calls = []

    def sometimes(*given: Any) -> Any:
        calls.append(given)
        return real(*given) if len(calls) > 1 else failing()

    monkeypatch.setattr(labelling, "estimate_trace", sometimes)
    built = build_dataset(tmp_path / "some.csv", tiny(2), processes=1)
    assert len(built.rows) == 1
    assert list(built.metadata["failed"].values()) == ["torch ended the capture process."]


BUILD = """
from oomcast.methods.gpumemnet.dataset import settings
from row_builder import QuickLabeller
from test_build import building, tiny

settings.source_digest = lambda *rooms: "whatever is edited while this test runs"
building.Labeller = QuickLabeller
if __name__ == "__main__":
    building.build_dataset({path!r}, tiny(60), processes=2)
"""


def test_killed_and_given_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real SIGKILL of the parent while two workers label; they end with it."""
    path = tmp_path / "data.csv"
    script = tmp_path / "build.py"
    script.write_text(BUILD.format(path=str(path)))
    environment = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]), "PATH": ""}
    command = [sys.executable, "-W", "ignore", str(script)]
    with subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        _wait_for_rows(process, journal_path(path), 4)
        children = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(children) >= 2
    _wait_until_gone(children)
    kept = journal_path(path).read_text().count("\n") - 1
    assert 4 <= kept < 60
    subprocess.run(command, env=environment, check=True)
    resumed = read_dataset(path)
    assert len({row.id for row in resumed.rows}) == len(resumed.rows) == 60
    monkeypatch.setattr(building, "Labeller", QuickLabeller)
    assert resumed.rows == build_dataset(tmp_path / "whole.csv", tiny(60), processes=1).rows


def _wait_for_rows(process: subprocess.Popen[bytes], journal: Path, rows: int) -> int:
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        found = journal.read_text().count("\n") - 1 if journal.exists() else 0
        if found >= rows:
            return found
        time.sleep(0.02)
    raise AssertionError("the build ended, or hung, before it could be killed")


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _wait_until_gone(pids: list[int]) -> None:
    end = time.monotonic() + 60
    while alive := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < end, alive
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_bad_settings(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="rows of a data set must be at least 1, not 0"):
        Settings.create(0)
    with pytest.raises(UnknownName, match="a100"):
        Settings.create(3, device="a1000-40gb")
    with pytest.raises(UnknownName, match="architecture"):
        Settings.create(3, architectures=["spiral"])
    with pytest.raises(UnknownName, match="source of labels"):
        Settings.create(3, labels="guesses")
    with pytest.raises(UnknownName, match="optimizer"):
        Settings.create(3, optimizer="adan")
    with pytest.raises(UnknownName, match="precision"):
        Settings.create(3, precision="fp23")
    with pytest.raises(BadInput, match="for a CPU, add --labels runs"):
        Settings.create(3, device="cpu")
    with pytest.raises(BadInput, match="seed must be at least 0"):
        Settings.create(3, seed=-1)
    with pytest.raises(BadInput, match="number of processes must be at least 1"):
        build_dataset(tmp_path / "data.csv", tiny(), processes=0)
    with pytest.raises(BadInput, match="there is no folder"):
        build_dataset(tmp_path / "no" / "data.csv", tiny())
