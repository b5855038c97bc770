"""Job files as seeds of a campaign: which parameters they have, what cases are made of them, what their runs hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_campaign import OWN_JOB

from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.methods.tbem import case_trace, static_value
from oomcast.methods.tbem.seeds import JobSeed, find_seed, framework_of_job


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN_JOB, encoding="utf-8")
    return path


def test_parameters_are_the_values_written_in_the_file(job: Path) -> None:
    seed = JobSeed.read(job)
    assert seed.values() == {"batch_size": 32, "WIDTH": 32, "RATE": 0.5, "LABEL": "a", "depth": 3, "extra": True}
    assert [parameter.kind for parameter in seed.parameters] == ["int", "int", "float", "str", "int", "bool"]
    assert framework_of_job(str(job)) == "torch"


def test_other_values_give_the_same_file_with_these_values(job: Path) -> None:
    seed = JobSeed.read(job)
    other = seed.job({"WIDTH": 64, "depth": 1, "LABEL": "b'", "extra": False, "RATE": 1.5}, "torch", 2)
    changed = job.with_name("other.py")
    changed.write_text(other, encoding="utf-8")
    again = JobSeed.read(changed)
    wanted = {"batch_size": 32, "WIDTH": 64, "RATE": 1.5, "LABEL": "b'", "depth": 1, "extra": False}
    assert again.values() == wanted
    job.write_text(OWN_JOB.replace("WIDTH = 32", "WIDTH = 99"), encoding="utf-8")
    assert JobSeed.read(job).digest == seed.digest
    job.write_text(OWN_JOB.replace("Linear(16,", "Linear(17,"), encoding="utf-8")
    assert JobSeed.read(job).digest != seed.digest


def test_a_case_trains_for_real_and_needs_no_oomcast(job: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("VALUE = 1\n")
    job.write_text(OWN_JOB.replace("import torch\n", "import torch\nimport beside\n", 1), encoding="utf-8")
    source = find_seed(str(job)).case({"depth": 2, "batch_size": 4}, "torch", 2, "cpu")
    assert "oomcast" not in source.split('"""', 2)[2]
    case = tmp_path / "elsewhere" / "case.py"
    case.parent.mkdir()
    case.write_text(source, encoding="utf-8")
    ran = subprocess.run([sys.executable, "-I", str(case)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_sgv_follows_the_values(job: Path) -> None:
    narrow, wide = (static_value(case_trace(str(job), {"batch_size": 8, "WIDTH": width}, 2)) for width in (32, 64))
    # 16*W + W, 3 layers of W*W + W, 10*W + 10, four bytes each.
    for width, figures in ((32, narrow), (64, wide)):
        assert figures.parameters == 4 * (16 * width + width + 3 * (width * width + width) + 10 * width + 10)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def model(): pass", "it has no function batch"),
        ("def model(", "cannot be read"),
        ("def model(a=1): pass\ndef batch(batch_size, a=2): pass", "gives a both 1 and 2"),
    ],
)
def test_what_is_no_job_file_is_told(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "job.py"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        JobSeed.read(path)


def test_new_proposes_factors_from_the_job_itself(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["campaign", "new", "own.py", "--output", "own.toml"]) == 0
    written = (tmp_path / "own.toml").read_text()
    factors = written.split("[factors]")[1].split("[layer_factors]")[0]
    # The width moves memory, so do the batch and the depth; the rate, the label and the switch do not.
    assert "WIDTH = [8, 16, 24, 32]" in factors
    assert "depth = [1, 3]" in factors
    assert "batch_size = [8, 16, 24, 32]" in factors
    for name in ("RATE", "LABEL", "extra"):
        assert name not in factors
    capsys.readouterr()
    assert main(["campaign", "plan", "own.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["runs"] >= 16
