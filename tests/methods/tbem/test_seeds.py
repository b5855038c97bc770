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
from oomcast.methods.tbem.script_seed import ScriptSeed
from oomcast.methods.tbem.seeds import JobSeed, find_seed


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN_JOB, encoding="utf-8")
    return path


def test_parameters_are_the_values_written_in_the_file(job: Path) -> None:
    seed = JobSeed.read(job)
    assert seed.values() == {"batch_size": 32, "WIDTH": 32, "RATE": 0.5, "LABEL": "a", "depth": 3, "extra": True}
    assert [parameter.kind for parameter in seed.parameters] == ["int", "int", "float", "str", "int", "bool"]
    assert seed.framework == "torch"


def test_other_values_give_the_same_file_with_these_values(job: Path) -> None:
    seed = JobSeed.read(job)
    other = seed.job({"WIDTH": 64, "depth": 1, "LABEL": "b'", "extra": False, "RATE": 1.5})
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


TEXT = """# größe
import torch
from torch import nn

def model():
    parts = []
    for _ in range({{layers=2}}):
        parts += [nn.Linear({{width=64}}, {{ width }}), nn.{{activation=ReLU|GELU}}()]
    return nn.Sequential(*parts)

def batch(batch_size):
    return torch.randn(batch_size, {{width}})
"""


def test_a_text_with_marked_places_is_a_seed(tmp_path: Path) -> None:
    file = tmp_path / "own.py.template"
    file.write_text(TEXT, encoding="utf-8")
    seed = find_seed(str(file))
    assert isinstance(seed, JobSeed)
    assert seed.values() == {"batch_size": 32, "layers": 2, "width": 64, "activation": "ReLU"}
    assert seed.framework == "torch"
    made = seed.job({"layers": 3, "width": 128, "activation": "GELU"})
    assert "range(3)" in made
    assert "nn.Linear(128, 128), nn.GELU()" in made
    assert "torch.randn(batch_size, 128)" in made
    with pytest.raises(BadInput, match="does not take activation = 'Tanh'; it takes one of ReLU, GELU"):
        seed.job({"activation": "Tanh"})
    narrow, wide = (static_value(case_trace(str(file), {"batch_size": 8, "width": width}, 2)) for width in (64, 128))
    assert wide.parameters == 2 * (128 * 128 + 128) * 4
    assert narrow.parameters == 2 * (64 * 64 + 64) * 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("{{layers=2}}", "2").replace("{{width=64}}", "{{width}}"), "gives width no value"),
        (TEXT.replace("{{ width }}", "{{width=65}}"), "gives width several values"),
        ("def model(): ...\n", "marks no place"),
        (TEXT.replace("def batch(", "def other("), "it has no function batch"),
    ],
)
def test_a_text_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.template"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        find_seed(str(file))


SCRIPT = """import sys
import torch
from beside import FEATURES

batch, width, steps = map(int, sys.argv[1:4])
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(FEATURES, width).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(steps):
    model(torch.randn(batch, FEATURES).to(device)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
open("ran.txt", "w").write(" ".join(sys.argv))
"""
LINE = "train.py {{batch_size=4}} {{width=512}} 2"


def test_a_script_is_a_seed_of_a_campaign(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is planned, captured, run for real, fitted and asked, by the commands that a person types."""
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "beside.py").write_text("FEATURES = 2048\n", encoding="utf-8")
    seed = ScriptSeed.read(LINE, tmp_path)
    assert [(one.name, one.default) for one in seed.parameters] == [("batch_size", 4), ("width", 512)]
    assert find_seed(seed.reference) == seed
    trace = case_trace(seed.reference, {"batch_size": 4, "width": 1024}, 2)
    assert static_value(trace).parameters == (2048 * 1024 + 1024) * 4
    campaign = tmp_path / "script.toml"
    levels = "batch_size = [2, 64]\nwidth = [256, 512, 1024]"
    campaign.write_text(
        f'script = "{LINE}"\nsteps = 2\n[plan]\nmethod = "full"\n[factors]\n{levels}\n', encoding="utf-8"
    )
    assert main(["campaign", "run", str(campaign), "--steady-malloc"]) == 0
    assert (tmp_path / "ran.txt").read_text().startswith("train.py ")
    assert main(["campaign", "fit", str(campaign)]) == 0
    capsys.readouterr()
    asked = ["estimate", f"template:{tmp_path}/train.py,width=700", "--batch-size", "32", "--device", "cpu"]
    asked += ["--estimator", "tbem", "--campaign", str(tmp_path / "script.gap.json")]
    assert main(asked) == 0
    assert "train.py 32 700 2 on cpu" in capsys.readouterr().out
    (tmp_path / "train.py").write_text(SCRIPT.replace("AdamW", "SGD"), encoding="utf-8")
    assert main(asked) == 2
    assert "measure it anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train.py {{width=512}}", "marks no batch size"),
        ("nowhere.py {{batch_size=8}}", "there is no script 'nowhere.py'"),
        ("torchrun --nproc_per_node 2 train.py {{batch_size=8}}", "in one process"),
    ],
)
def test_a_line_that_starts_no_script_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.py").write_text("", encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        ScriptSeed.read(line, tmp_path)


def test_sgv_on_a_cpu_has_the_temporaries_of_one_parameter(tmp_path: Path) -> None:
    """torch's optimizers on a CPU take one parameter after the other: Adam's root and quotient of the largest."""
    file = tmp_path / "own.py"
    text = "import torch\ndef model(): return torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 64))"
    file.write_text(f"{text}\ndef batch(batch_size): return torch.randn(batch_size, 256)\n", encoding="utf-8")
    static = static_value(case_trace(str(file), {"batch_size": 1}, 2))
    largest, states = 256 * 512 * 4, 4 * static.parameters
    assert states + 2 * largest <= static.total <= states + 2 * largest + 20_000
    on_gpu = case_trace(str(file), {"batch_size": 1}, 2, "a100-40gb")
    assert any("_foreach_" in made.operator for made in on_gpu.allocations)
