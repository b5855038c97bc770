"""`oomcast calibrate` as a user meets it, and what it does to `oomcast estimate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oomcast.cli import main
from oomcast.units import MiB

JOB = ("zoo:mlp", "--batch-size", "512", "--device", "rtx-3090", "--environment", "torch-2.8-cu128")


def run(*arguments: object) -> int:
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as left:  # argparse leaves by itself
        return int(str(left.code))


def answer(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert run(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_calibrate_estimate_list_show_remove(capsys: pytest.CaptureFixture[str], config_folder: Path) -> None:
    plain = answer(capsys, "estimate", *JOB)
    total = plain["peak_reserved"] + 640 * MiB
    assert run("calibrate", *JOB, "--nvidia-smi", f"{total}B") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("CALIBRATED  rtx-3090@torch-2.8-cu128, by 1 real run")
    for word in ("Before", "After", "CUDA context", "640.0 MiB", "will not exceed", "P(OOM)", str(config_folder)):
        assert word in shown
    later = answer(capsys, "estimate", *JOB)
    assert later["device_total"] == total
    assert later["provenance"]["calibration"] == "rtx-3090@torch-2.8-cu128, 1 real run"
    assert answer(capsys, "estimate", *JOB, "--no-calibration")["device_total"] == plain["device_total"]
    assert run("estimate", *JOB) == 0
    text = capsys.readouterr().out
    assert "calibrated by rtx-3090@torch-2.8-cu128, 1 real run" in text
    [listed] = answer(capsys, "calibrate", "--list")
    assert listed["name"] == "rtx-3090@torch-2.8-cu128"
    assert listed["runs"][0]["device_total"] == total
    assert run("calibrate", "--list") == 0
    assert "rtx-3090@torch-2.8-cu128" in capsys.readouterr().out
    assert run("calibrate", "--show", "rtx-3090@torch-2.8-cu128") == 0
    assert "zoo:mlp" in capsys.readouterr().out
    whole = [{key: value for key, value in listed.items() if key != "path"}]
    assert answer(capsys, "calibrate", "--show", "rtx-3090@torch-2.8-cu128") == whole
    assert answer(capsys, "calibrate", "--show") == whole
    assert run("calibrate", "--remove", "torch-2.8-cu128") == 0
    assert "removed" in capsys.readouterr().out
    assert answer(capsys, "calibrate", "--list") == []
    assert run("calibrate", "--list") == 0
    assert "No calibration is kept." in capsys.readouterr().out


def test_an_artifact_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "lab.json"
    plain = answer(capsys, "estimate", *JOB)
    total = plain["peak_reserved"] + 900 * MiB
    change = answer(capsys, "calibrate", *JOB, "--nvidia-smi", f"{total}B", "--output", file)
    assert change["before"]["estimate"]["device_total"] == plain["device_total"]
    assert change["after"]["constants"]["context"] == 900 * MiB
    assert json.loads(file.read_text())["gpu"] == "rtx-3090"
    assert answer(capsys, "estimate", *JOB)["device_total"] == plain["device_total"]
    assert answer(capsys, "estimate", *JOB, "--calibration", file)["device_total"] == total
    assert run("calibrate", *JOB, "--nvidia-smi", f"{total}B", "--output", file) == 0
    assert "estimate --calibration lab.json" in capsys.readouterr().out


def test_the_estimate_shows_its_risk(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "estimate", *JOB, "--coverage", "0.9")
    assert told["coverage"] == 0.9
    assert 0 <= told["p_oom"] < 0.01
    assert told["device_total"] <= told["will_not_exceed"] <= told["high"]
    assert run("estimate", *JOB, "--coverage", "0.9") == 0
    second = capsys.readouterr().out.splitlines()[1]
    assert second.startswith("90%: will not exceed ")
    assert "P(OOM) on this device below 0.1%" in second


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["calibrate"], "a calibration needs JOB"),
        (["calibrate", "zoo:mlp", "--device", "t4", "--nvidia-smi", "1"], "needs --batch-size"),
        (["calibrate", "zoo:mlp", "--batch-size", "1", "--nvidia-smi", "1"], "needs --device"),
        (["calibrate", *JOB], "exactly one of"),
        (["calibrate", *JOB, "--nvidia-smi", "1", "--snapshot", "x"], "not --nvidia-smi and --snapshot"),
        (["calibrate", *JOB[:-2], "--nvidia-smi", "3000"], "needs --environment"),
        (["calibrate", *JOB, "--nvidia-smi", "lots"], "cannot read 'lots' as a size"),
        (["calibrate", *JOB, "--nvidia-smi", "90000"], "it is from another GPU"),
        (["calibrate", *JOB, "--nvidia-smi", "2MiB"], "of this job's tensors"),
        (["calibrate", *JOB, "--snapshot", "nowhere.pickle"], "cannot read nowhere.pickle"),
        (["calibrate", *JOB, "--memory-stats", "nowhere.json"], "cannot read nowhere.json"),
        (["calibrate", "--list", "--show", "x"], "stand alone"),
        (["calibrate", "zoo:mlp", "--list"], "stand alone"),
        (["calibrate", "--show", "x"], "unknown calibration"),
        (["calibrate", "--remove", "x"], "unknown calibration"),
        (["estimate", *JOB, "--calibration", "nowhere.json"], "cannot read the calibration nowhere.json"),
        (["estimate", *JOB, "--calibration", "x", "--no-calibration"], "exclude each other"),
        (["estimate", *JOB, "--coverage", "1.5"], "coverage must be above 0"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str], config_folder: Path
) -> None:
    assert run(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.startswith("oomcast: ")
    assert len(captured.err.strip().splitlines()) == 1
    assert not list(config_folder.rglob("*.json"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_real_run_needs_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("calibrate", *JOB[:-2], "--run") == 2
    told = capsys.readouterr().err
    assert "no GPU was found on this machine" in told
    assert "--nvidia-smi, --snapshot or --memory-stats" in told
    assert len(told.strip().splitlines()) == 1


def test_undo_takes_back_the_newest_run(capsys: pytest.CaptureFixture[str]) -> None:
    measure = ["calibrate", "zoo:mlp", "--batch-size", "8", "--device", "rtx-3090", "--environment", "torch-2.8-cu128"]
    assert main([*measure, "--nvidia-smi", "600MiB"]) == 0
    assert main([*measure, "--nvidia-smi", "610MiB"]) == 0
    name = "rtx-3090@torch-2.8-cu128"
    capsys.readouterr()
    assert main(["calibrate", "--undo", name]) == 0
    assert capsys.readouterr().out == f"took back the newest run of {name}; runs left: 1\n"
    assert main(["calibrate", "--undo", name]) == 0
    assert "no run is left" in capsys.readouterr().out
    assert main(["calibrate", "--undo", name]) == 2
    assert "unknown calibration" in capsys.readouterr().err
