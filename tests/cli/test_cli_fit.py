"""`oomcast fit`, `gpus` and `advise` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomcast.cli import main
from oomcast.units import format_bytes

JOB = """
import torch
from torch import nn

WIDTH = 512
EPOCHS = 3

def model():
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, 10))

def batch(batch_size):
    return torch.randn(batch_size, WIDTH), torch.randint(0, 10, (batch_size,))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


def fitted(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    assert run("fit", *arguments, "--steps", 2, "--json") == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_largest_batch_fits_by_estimate_and_the_next_does_not(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plot = tmp_path / "curve.svg"
    found = fitted(capsys, job, "--device", "2GiB", "--plot", plot)
    value = found["value"]
    assert isinstance(value, int)
    assert found["captures"] <= 4  # type: ignore[operator]
    assert found["unverified"] == []
    assert plot.read_text().startswith("<svg ")
    assert f"2GiB: {format_bytes(found['device_usable'])}" in plot.read_text()  # type: ignore[arg-type]
    assert plot.read_text().count('class="limit"') == 2
    assert 'class="a band"' in plot.read_text()
    for batch_size, enough in ((value, True), (value + 1, False)):
        run("estimate", job, "--device", "2GiB", "--batch-size", batch_size, "--steps", 2, "--json")
        assert (json.loads(capsys.readouterr().out)["p_oom"] <= 0.05) is enough


def test_a_number_of_the_job_file(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fitted(capsys, job, "--device", "2GiB", "--batch-size", 4096, "--parameter", "width", "--step", 64)
    value = found["value"]
    assert isinstance(value, int)
    assert value % 64 == 0
    written = job.read_text()
    for width, enough in ((value, True), (value + 64, False)):
        job.write_text(written.replace("WIDTH = 512", f"WIDTH = {width}"))
        run("estimate", job, "--device", "2GiB", "--batch-size", 4096, "--steps", 2, "--json")
        assert (json.loads(capsys.readouterr().out)["p_oom"] <= 0.05) is enough


def test_the_text_of_fit(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit", job, "--device", "2GiB", "--at-most", 64, "--steps", 1) == 0
    out = capsys.readouterr().out
    assert out.startswith("64 ")
    assert "the limit, not memory, ends it" in out
    assert "is the end of 2GiB" in out


def test_a_device_smaller_than_the_parameters_says_the_floor(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(job.read_text().replace("WIDTH = 512", "WIDTH = 20000"))
    assert run("fit", job, "--device", "2GiB", "--steps", 1) == 3
    out = capsys.readouterr().out
    assert out.startswith("NOTHING FITS")
    assert "The floor: parameters 5." in out
    assert "the smallest GPU of the catalogue that would do is " in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("fit",), "needs a JOB"),
        (("fit", "JOB"), "needs --device"),
        (("fit", "JOB", "--device", "t4", "--batch-size", 8), "--batch-size is what is looked for"),
        (("fit", "JOB", "--device", "t4", "--plot", "curve.pdf"), "written as SVG or PNG"),
        (("fit", "JOB", "--device", "t4", "--parameter", "wide"), "did you mean WIDTH"),
        (("fit", "JOB", "--device", "t4", "--at-least", 9, "--at-most", 3), "contradict each other"),
        (("fit", "JOB", "--device", "t4", "--parameter", "EPOCHS", "--steps", 1), "EPOCHS does not change"),
        (("fit", "JOB", "--device", "t4", "--parameter", "seq-len", "--steps", 1), "takes no seq_len"),
        (("gpus", "JOB"), "needs --batch-size"),
        (("gpus", "JOB", "--batch-size", 8, "--device", "t4"), "leave --device out"),
        (("gpus", "JOB", "--batch-size", 8, "--prices", "none.csv"), "cannot read none.csv"),
        (("advise", "JOB", "--batch-size", 8, "--device", "t4", "--goal", "some"), "cannot read 'some' as a size"),
    ],
)
def test_mistakes(job: Path, arguments: tuple[object, ...], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*(str(job) if argument == "JOB" else argument for argument in arguments)) == 2
    error = capsys.readouterr().err
    assert error.startswith("oomcast: ")
    assert sentence in error.replace("\n", " ")


def test_the_text_of_gpus(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text("gpu,price_per_hour,provider\nrtx-4090,0.7,Shop\n")
    assert run("gpus", job, "--batch-size", 200_000, "--steps", 1, "--prices", prices) == 0
    out = capsys.readouterr().out
    first = " ".join(out.split("GPU  ")[0].split())
    assert "is the smallest GPU that is enough" in first
    assert "rtx-4090 is the cheapest with a price, 0.70 USD at Shop" in first
    assert "Headroom" in out


def test_the_text_of_advise(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("advise", job, "--batch-size", 150_000, "--device", "2GiB", "--steps", 1)
    assert run(*arguments, "--only", "accumulate-4,amp-bf16") == 0
    out = capsys.readouterr().out
    assert out.startswith("1 CHANGE ")
    assert "1. accumulate-4" in out
    assert "Each change alone" in out
    assert run(*arguments, "--only", "expandable-segments", "--json") == 3
    told = json.loads(capsys.readouterr().out)
    assert told["reachable"] is False
    assert (
        told["single"][0]["saving"]
        == told["base"]["least_capacity"] - (told["single"][0]["estimate"]["least_capacity"])
    )
