"""same-bytes: its list of jobs, the record of 0.1.0, and what a comparison says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.__main__ import main
from lab.same_bytes.command import FIGURES_OF_0_1_0
from lab.same_bytes.comparing import differences, read_record
from lab.same_bytes.jobs import FRAMEWORKS, JOBS
from lab.same_bytes.reasons import reason_for
from lab.same_bytes.runner import FILES


def test_the_jobs_are_many_and_have_names_of_their_own() -> None:
    assert len({job.name for job in JOBS}) == len(JOBS) >= 80
    assert {job.framework for job in JOBS} == set(FRAMEWORKS)
    made_elsewhere = (".onnx", "nowhere.py")
    for job in JOBS:
        if job.kind == "estimate" and job.job.startswith("file:") and not job.job.endswith(made_elsewhere):
            assert job.job.removeprefix("file:") in FILES


def test_the_record_of_0_1_0_knows_them() -> None:
    known = read_record(FIGURES_OF_0_1_0)["jobs"]
    assert {job.name for job in JOBS} <= set(known)
    assert all("error" in known[job.name] for job in JOBS if job.fails)


def test_differences_are_told_by_their_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == [("a[1].b", 2, 3)]
    assert differences({"a": 1}, {"a": True}) == [("a", 1, True)]
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, held in zip(files, (1, 2), strict=True):
        record = {
            "kind": "same bytes",
            "meta": {"code": "x", "versions": {}, "left_out": []},
            "jobs": {"mlp": {"peak": held}, "cnn": {"peak": 5}},
        }
        file.write_text(json.dumps(record), encoding="utf-8")
    assert main(["same-bytes", "compare", *map(str, files)]) == 1
    shown = capsys.readouterr().out
    assert "peak: 1 -> 2" in shown
    assert "2 jobs compared, 1 differ, 0 missing" in shown
    assert main(["same-bytes", "compare", str(files[0]), str(files[0])]) == 0
    assert main(["same-bytes", "compare", str(tmp_path / "nothing.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def explained(job: str, path: str, before: object = 1, after: object = 2) -> str:
    return reason_for(job, path, before, after, ({}, {})) or ""


def test_a_reason_covers_its_own_defect_alone() -> None:
    assert "Blackwell" in explained("zoo-mlp-b300", "peak_reserved")
    assert "Blackwell" in explained("rank-gpus", "choices.b200.needed")
    assert explained("rank-gpus", "choices.a100-40gb.needed") == ""
    assert explained("zoo-resnet50-a100", "peak_reserved") == ""
    assert "before torch 2.0" in explained("file-cnn-k80", "phase_peaks[5][2]")
    assert "contradict" in explained("calibrated-mlp", "low")
    assert explained("calibrated-mlp", "device_total") == ""
    assert "assumed" in explained("zoo-resnet50-a100", "assumptions", [], ["the optimizer is AdamW"])
    assert explained("zoo-resnet50-a100", "assumptions", ["something"], []) == ""
    assert explained("no-such-job", "assumptions", [], ["more"]) == ""


def test_bytes_may_change_their_category_but_not_their_sum() -> None:
    name, file = "sweep-convolutions-h100-bf16-channels-last", "convolution_19.py"
    before = {file: {"breakdown": {"gradient": 0, "temporary": 5}}}
    moved, lost = ({file: {"breakdown": {"gradient": 2, "temporary": left}}} for left in (3, 2))
    assert reason_for(name, f"{file}.breakdown.gradient", 0, 2, (before, moved))
    assert reason_for(name, f"{file}.breakdown.gradient", 0, 2, (before, lost)) is None


def test_only_figures_of_0_1_0_are_excused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for code, expected in (("oomcast 0.1.0 (x)", 0), ("oomcast 0.2.0", 1)):
        for file, held in zip(files, (1, 2), strict=True):
            meta = {"code": code, "versions": {}, "left_out": []}
            record = {"kind": "same bytes", "meta": meta, "jobs": {"zoo-mlp-b300": {"peak_reserved": held}}}
            file.write_text(json.dumps(record), encoding="utf-8")
        assert main(["same-bytes", "compare", *map(str, files)]) == expected
        assert ("1 figures differ on purpose" in capsys.readouterr().out) == (expected == 0)


def test_a_job_is_recorded_and_equals_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.json"
    assert main(["same-bytes", "record", str(record), "--only", "error-zoo-name", "--frameworks", "torch"]) == 0
    assert "0 did not end as the list says" in capsys.readouterr().out
    assert main(["same-bytes", "compare", str(record)]) == 0
    assert "1 jobs compared, 0 differ" in capsys.readouterr().out
    assert main(["same-bytes", "record", str(record), "--frameworks", "torhc"]) == 2
