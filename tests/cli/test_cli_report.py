"""Pages, figures, snapshots and differences from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from oomcast.cli import main

JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))
"""


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def test_one_run_writes_all_reports_and_they_agree(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, figure, snapshot = tmp_path / "step.html", tmp_path / "step.svg", tmp_path / "step.pickle"
    files = ("--html", page, "--svg", figure, "--snapshot", snapshot)
    assert run("estimate", job, "--batch-size", 4096, "--device", "rtx-3090", "--json", *files) == 0
    answer = json.loads(capsys.readouterr().out)
    held = re.search(r'<script type="application/json" id="estimate">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert held is not None
    assert json.loads(held[1]) == answer
    assert figure.read_text(encoding="utf-8").startswith("<svg")
    assert run("replay", snapshot, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["exact"]
    assert told["starts_from_known_state"]
    assert told["recorded_peak_reserved"] == answer["peak_reserved"]
    assert told["simulated_peak_allocated"] == answer["peak_allocated"]


def test_diff_of_two_batch_sizes(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for batch_size in (1024, 65536):
        run("estimate", job, "--batch-size", batch_size, "--device", "rtx-3090", "--json")
        files.append(tmp_path / f"{batch_size}.json")
        files[-1].write_text(capsys.readouterr().out)
    page = tmp_path / "diff.html"
    assert run("diff", *files, "--html", page) == 0
    text = capsys.readouterr().out
    assert text.startswith("Device total: ")
    assert "batch size: 1024 → 65536" in text
    assert "batch size" in page.read_text(encoding="utf-8")
    assert run("diff", *files, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    before, after = (json.loads(file.read_text()) for file in files)
    assert told["totals"][-1]["change"] == after["device_total"] - before["device_total"]
    assert sum(row["change"] for row in told["categories"]) == told["totals"][-1]["change"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--html", "{tmp}/no/page.html"), "there is no folder"),
        (("--svg", "{tmp}"), "it is a folder"),
        (("--html", "{tmp}/a", "--snapshot", "{tmp}/a"), "named for two outputs"),
    ],
)
def test_places_that_cannot_be_written_are_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    assert run("estimate", tmp_path / "no-job.py", "--batch-size", 1, "--device", "rtx-3090", *given) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_diff_refuses_what_is_no_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nonsense = tmp_path / "nonsense"
    nonsense.write_bytes(b"\x80\x04cos\nsystem\n.")
    assert run("diff", nonsense, nonsense) == 2
    assert "not a memory snapshot that can be read safely" in " ".join(capsys.readouterr().err.split())
    assert run("diff", nonsense, nonsense, "--depth", 0) == 2
    assert "at least 1" in capsys.readouterr().err


def test_estimators_without_an_allocator_have_a_page_but_no_snapshot(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("numpy")
    common = ("estimate", job, "--batch-size", 64, "--device", "a100-40gb", "--estimator", "gpumemnet-mlp")
    run(*common, "--html", tmp_path / "page.html")
    assert "The device" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert run(*common, "--snapshot", tmp_path / "s.pickle") == 2
    assert "follows no allocations" in " ".join(capsys.readouterr().err.split())
