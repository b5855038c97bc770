"""Runs that people have packed are judged like any other row, from their own Traces."""

from __future__ import annotations

from pathlib import Path

import oomcast
from lab.accuracy import Measure, read_sets
from lab.accuracy.running import run_cases


def test_packed_runs_are_judged_by_their_own_traces(tmp_path: Path) -> None:
    folder = tmp_path / "contributed"
    folder.mkdir()
    asked = {"batch_size": 16, "device": "rtx-3090", "environment": "torch-2.8-cu128"}
    told = oomcast.contribute("zoo:resnet18", output=folder / "ran.json", nvidia_smi="1300MiB", **asked)
    oomcast.contribute("zoo:resnet18", output=folder / "died.json", out_of_memory=True, **{**asked, "batch_size": 8192})
    (folder / "song.json").write_text("la")
    (found,) = read_sets(tmp_path)
    died, ran = found.cases
    assert (ran.measure, ran.measured, ran.ran, ran.family) == (Measure.DEVICE_TOTAL, 1300 << 20, True, told.family)
    assert (died.measured, died.ran, died.family) == (None, False, told.family)
    assert [skipped.row for skipped in found.skipped] == ["song.json"]
    results = list(run_cases(found.cases, ("simulator",), tmp_path / "cache"))
    predicted = {result.case.row: result.answers["simulator"].prediction for result in results}
    assert predicted["ran"].reserved == told.estimated_reserved
    assert predicted["ran"].reserved + predicted["ran"].context == told.estimated_total
    assert predicted["ran"].fits
    assert not predicted["died"].fits
