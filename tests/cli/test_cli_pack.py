"""`oomcast pack` as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from oomcast.cli import main


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return path


def job(name: str, total: str, more: str = "") -> str:
    return f'[[job]]\nname = "{name}"\ndevice_total = "{total}"\n{more}\n'


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def test_all_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    path = written(tmp_path, job("big", "30GiB") + job("small", "5GiB", "count = 3"))
    assert run("pack", path, "--gpus", "3xa100-40gb", "--svg", tmp_path / "cards.svg") == 0
    out = capsys.readouterr().out
    assert out.startswith("ALL PLACED  4 jobs on 2 of 3 GPUs")
    assert "at least 2 GPUs are needed (gap 0.0%)" in out
    assert "big (30.00 GiB)" in out
    drawn = ET.parse(tmp_path / "cards.svg").getroot()
    titles = [one.text or "" for one in drawn.iter("{http://www.w3.org/2000/svg}title")]
    assert sorted(titles) == ["big: 30.00 GiB", *(f"small#{n}: 5.00 GiB" for n in (1, 2, 3))]


def test_json_and_not_all_placed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ortools")
    path = written(tmp_path, "gpus = '1xrtx-3090'\n" + job("a", "30GiB") + job("b", "15GiB") + job("c", "14GiB"))
    assert run("pack", path, "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["all_placed"] is False
    assert told["jobs_placed"] == 1
    assert told["most_jobs_proven"] == 1
    assert told["gap"] == 0.0
    (gpu,) = told["gpus"]
    assert gpu["device_total"] == gpu["jobs"][0]["device_total"] <= gpu["usable"]
    reasons = {one["name"]: one["reason"] for one in told["left_out"]}
    assert "even with a card to itself" in reasons["a"]
    assert "no card has room for it beside the others" in next(reasons[name] for name in "bc" if name in reasons)


def test_jobs_are_estimated_for_the_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    path = written(tmp_path, '[[job]]\nname = "mlp"\njob = "zoo:mlp"\nbatch_size = 64\ncount = 2\n')
    assert run("estimate", "zoo:mlp", "--batch-size", 64, "--device", "rtx-3090", "--json") == 0
    alone = json.loads(capsys.readouterr().out)["device_total"]
    assert run("pack", path, "--gpus", "rtx-3090", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["device_total"] for one in told["gpus"][0]["jobs"]] == [alone, alone]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no GPUs are given"),
        (["--gpus", "2xa1000"], "unknown device"),
        (["--gpus", "a100-40gb", "--risk", "1.5"], "risk must lie between 0 and 1"),
        (["--gpus", "a100-40gb", "--max-per-gpu", "0"], "places none"),
        (["--gpus", "a100-40gb", "--time-limit", "0"], "time limit"),
        (["--gpus", "a100-40gb", "--svg", "/nowhere/x.svg"], "cannot write"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    assert run("pack", written(tmp_path, job("a", "3GiB")), *arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert "Traceback" not in captured.err


def test_a_job_that_cannot_be_estimated_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, '[[job]]\nname = "typo"\njob = "zoo:resnet5000"\nbatch_size = 64\n')
    assert run("pack", path, "--gpus", "rtx-3090") == 2
    assert "job 'typo': unknown" in capsys.readouterr().err


def test_the_command_line_loads_no_numpy() -> None:
    code = "import sys, oomcast.cli; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def opinions(name: str, arrival: int, truth: str, simulator: str, horus: str) -> str:
    return (
        f'[[job]]\nname = "{name}"\narrival = {arrival}\nduration = 100\ntruth = "{truth}"\n'
        f'[job.estimates.simulator]\ndevice_total = "{simulator}"\n'
        f'[job.estimates.horus]\ndevice_total = "{horus}"\nlow = "{horus}"\nhigh = "{horus}"\n'
    )


def test_a_replay_compares_estimators_and_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = opinions("a", 0, "20GiB", "20GiB", "4GiB") + opinions("b", 10, "22GiB", "22GiB", "4GiB")
    path = written(tmp_path, "gpus = 'a100-40gb'\n" + text)
    assert run("pack", path, "--replay", "--crash-after", 30, "--json") == 0
    told = {(one["policy"], one["estimator"]): one for one in json.loads(capsys.readouterr().out)}
    assert set(told) == {("exclusive", None)} | {
        (policy, estimator) for policy in ("first-fit", "best-fit", "interval") for estimator in ("simulator", "horus")
    }
    assert told["interval", "simulator"]["ooms"] == 0
    assert told["first-fit", "horus"]["ooms"] == 1
    assert told["first-fit", "horus"]["lost_seconds"] == 30
    assert run("pack", path, "--replay", "--policies", "best-fit", "--estimator", "horus") == 0
    out = capsys.readouterr().out
    assert out.startswith("2 jobs on 1 GPUs")
    assert "best-fit" in out
    assert "exclusive" not in out


@pytest.mark.parametrize(
    ("more", "arguments", "told"),
    [
        ("", ["--replay"], "has no duration"),
        ("duration = 4", ["--replay"], "has no truth"),
        ("duration = 4\ntruth = 9", ["--replay", "--policies", "worst"], "unknown policy"),
        ("duration = 4\ntruth = 9", ["--replay", "--slowdown", "-1"], "must not be negative"),
        ("", ["--draw-truth", "3"], "add --replay"),
        ("", ["--policies", "first-fit"], "add --replay"),
        ("", ["--replay", "--svg", "x.svg"], "draws a packing"),
    ],
)
def test_mistakes_of_a_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, arguments: list[str], told: str
) -> None:
    path = written(tmp_path, job("a", "3GiB", more))
    assert run("pack", path, "--gpus", "a100-40gb", *arguments) == 2
    assert told in capsys.readouterr().err


def test_a_job_that_never_runs_gives_the_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, job("giant", "3GiB", "duration = 9\ntruth = '90GiB'"))
    assert run("pack", path, "--gpus", "a100-40gb", "--replay") == 3
    assert "Never ran, since no GPU holds what they need: giant." in capsys.readouterr().out
