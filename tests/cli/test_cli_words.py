"""The words of an answer: the same in JSON and Python, one line in a shell, and nothing assumed in silence."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import oomcast
from oomcast.cli import main

JOB = """
import torch

def model():
    return torch.nn.Linear(8, 8)

def batch(batch_size):
    return torch.randn(batch_size, 8), torch.randn(batch_size, 8)

def loss(model, batch):
    return (model(batch[0]) - batch[1]).square().mean()
"""
ADAMW = "the optimizer is AdamW, since neither the job nor --optimizer names one"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def told(capsys: pytest.CaptureFixture[str], job: Path, *words: str) -> dict[str, object]:
    assert main(["estimate", str(job), "--batch-size", "4", "--json", *words]) == 0
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_json_and_python_have_the_same_names(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = oomcast.estimate(job, batch_size=4, device="t4")
    plain = told(capsys, job, "--device", "t4")
    fields = {field.name for field in dataclasses.fields(answer)}
    assert set(plain) - {"peak_by_phase"} == (fields - {"history"}) | {"fits", "headroom", "highest_by_phase"}
    for name in ("peak_allocated", "device_total", "low", "high", "device", "fits", "headroom"):
        assert plain[name] == getattr(answer, name)
    assert plain["phase_peaks"] == plain["peak_by_phase"]
    assert [tuple(peak.values()) for peak in plain["phase_peaks"]] == list(answer.phase_peaks)  # type: ignore[attr-defined]


def test_an_estimate_shows_itself_in_one_line(job: Path) -> None:
    answer = oomcast.estimate(job, batch_size=4, device="t4")
    shown = repr(answer)
    assert "\n" not in shown
    assert len(shown) < 300
    for word in ("FITS", str(job), "t4", "MiB of 14.", "95% interval", "P(OOM)"):
        assert word in shown


def test_an_assumed_optimizer_is_said(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assumed = told(capsys, job, "--device", "t4")
    named = told(capsys, job, "--device", "t4", "--optimizer", "adamw")
    assert assumed["assumptions"] == [ADAMW]
    assert named["assumptions"] == []
    assert assumed["breakdown"] == named["breakdown"]
    assert main(["estimate", str(job), "--batch-size", "4", "--device", "t4"]) == 0
    assert f"Assumed: {ADAMW}." in capsys.readouterr().out
    job.write_text(JOB + "\ndef optimizer(params):\n    return torch.optim.SGD(params, lr=0.1)\n")
    assert told(capsys, job, "--device", "t4")["assumptions"] == []


def test_a_card_that_was_chosen_among_several_is_said(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared = told(capsys, job, "--device", "A100", "--optimizer", "sgd")
    exact = told(capsys, job, "--device", "a100-40gb", "--optimizer", "sgd")
    [sentence] = shared["assumptions"]  # type: ignore[misc]
    assert sentence.startswith("A100 is the a100-40gb; the same name is used for the ")  # type: ignore[has-type]
    assert "a100-80gb" in sentence  # type: ignore[has-type]
    assert exact["assumptions"] == []
    assert {**shared, "assumptions": [], "seconds": 0} == {**exact, "seconds": 0}
