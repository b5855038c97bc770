"""The command line as a user meets it: output, exit codes, and one clear sentence for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomcast.cli import main

JOB = """
import torch
from torch import nn

def model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(0, 10, (batch_size,))
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text(JOB)
    return path


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "job.py"
    path.write_text(text)
    return str(path)


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


OWN_FORWARD = (
    JOB
    + """
def loss(model, batch):
    hidden = model[0](batch[0])
    return nn.functional.cross_entropy(model[2](hidden.relu()), batch[1])
"""
)


def test_the_text_leads_with_the_verdict(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(OWN_FORWARD)
    assert run("estimate", job, "--batch-size", 32_000, "--device", "rtx-3090") == 0
    out = capsys.readouterr().out
    assert out.startswith("FITS ")
    assert "rtx-3090" in out.splitlines()[0]
    for word in ("Parameter", "Gradient", "Optstate", "Temp", "CUDA context", "Device total", "job.py:"):
        assert word in out
    assert "\x1b" not in out  # a pipe gets no colours


def test_json_has_the_promised_fields_in_bytes(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", job, "--batch_size", 32, "--device", "a100-40gb", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    for field in ("peak_allocated", "peak_reserved", "device_total", "low", "high"):
        assert type(answer[field]) is int
    assert answer["verdict"] == "fits"
    assert 0 < answer["coverage"] < 1
    assert answer["low"] <= answer["device_total"] <= answer["high"]
    assert answer["peak_allocated"] <= answer["peak_reserved"] <= answer["device_total"]
    assert sum(answer["breakdown"].values()) == answer["device_total"]
    assert answer["breakdown"]["parameter"] >= 4 * (64 * 256 + 256 + 256 * 10 + 10)
    assert answer["unsupported"] == {}
    assert answer["seconds"] > 0
    assert answer["provenance"]["estimator"] == "simulator"
    assert answer["provenance"]["versions"]["torch"]


def test_what_does_not_fit_exits_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = write(tmp_path, JOB.replace("256", "200_000"))
    assert run("estimate", large, "--batch-size", 8, "--device", "256MiB") == 3
    assert capsys.readouterr().out.startswith("OOM ")


def test_options_change_the_answer(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def peak(*options: object) -> dict[str, int]:
        assert run("estimate", job, "--batch-size", 512, "--device", "t4", "--json", *options) == 0
        found: dict[str, int] = json.loads(capsys.readouterr().out)
        return found

    plain = peak("--optimizer", "adam")
    assert peak("--optimizer", "sgd")["breakdown"]["optimizer_state"] == 0  # type: ignore[index]
    assert plain["breakdown"]["optimizer_state"] > 0  # type: ignore[index]
    assert peak("--precision", "bf16")["breakdown"]["parameter"] < plain["breakdown"]["parameter"]  # type: ignore[index]
    assert peak("--keep-gradients", "--zero-grad", "after-step")["peak_allocated"] >= plain["peak_allocated"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["zoo:resnet5", "--batch-size", "1", "--device", "t4"], "did you mean resnet50"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "a1000-40gb"], "unknown device"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--optimizer", "adamm"], "did you mean adam"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--precision", "fp23"], "did you mean fp32"),
        (["zoo:resnet50", "--batch-size", "0", "--device", "t4"], "batch size must be a whole number of at least 1"),
        (["zoo:resnet50", "--batch-size", "two", "--device", "t4"], "--batch-size"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--input-shape", "3x"], "3x224x224"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--environment", "torch-9"], "unknown environment"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--alloc-conf", "nope:1"], "nope"),
        (["zoo:resnet50", "--batch-size", "1", "--device", "t4", "--estimator", "magic"], "unknown estimator"),
        (["resnet50", "--batch-size", "1", "--device", "t4"], "zoo:resnet50"),
        (["zoo:", "--batch-size", "1", "--device", "t4"], "names no model"),
        (["zo:resnet50", "--batch-size", "1", "--device", "t4"], "did you mean zoo"),
        (["missing.py", "--batch-size", "1", "--device", "t4"], "there is no job file"),
        (["zoo:resnet50", "--batch-size", "1"], "--device"),
        (["zoo:vgg16", "--batch-size", "1", "--device", "t4", "--seq-len", "7"], "vgg16"),
        (["hf:no-such-model", "--batch-size", "1", "--device", "t4"], "unknown hf model"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["estimate", *arguments])
    except SystemExit as error:  # argparse leaves by itself
        code = int(str(error.code))
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert sentence in captured.err
    assert captured.err.startswith("oomcast: ")
    assert len(captured.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (JOB.replace("def model", "def net"), "defines no model"),
        (JOB.replace("def batch", "def data"), "defines no batch"),
        (JOB.replace("def model():", "def model(:"), "not valid Python"),
        (JOB + "\nraise SystemExit(5)\n", "sys.exit"),
        (JOB.replace("return nn.Sequential", "return 1 or nn.Sequential"), "must return a torch.nn.Module"),
        (JOB + "\ndef loss(model, batch):\n    return 3.0\n", "must return a tensor"),
        (JOB + "\ndef loss(model, batch):\n    return model(batch[0])\n", "must be a single number"),
        (JOB + "\ndef loss(model, batch):\n    return batch[0].sum()\n", "does not depend on any trained parameter"),
        (JOB + "\ndef optimizer(params):\n    return list(params)\n", "must return a torch optimizer"),
        (JOB.replace("nn.Linear(64, 256)", "nn.Linear(65, 256)"), "4, 64"),
    ],
)
def test_faulty_job_files(tmp_path: Path, text: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4") == 2
    assert sentence in capsys.readouterr().err


def test_an_exception_shows_the_users_lines_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = JOB.replace("    return torch.randn", "    broken = {}['missing']\n    return torch.randn")
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4") == 2
    err = capsys.readouterr().err
    assert "KeyError" in err
    assert "broken = {}['missing']" in err
    assert "oomcast/capture" not in err
    assert "site-packages" not in err


def test_a_job_that_never_returns_is_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import time\n" + JOB.replace("    return torch.randn", "    time.sleep(600)\n    return torch.randn")
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4", "--time-limit", 8) == 2
    assert "--time-limit" in capsys.readouterr().err


def test_an_abort_becomes_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import os\n" + JOB.replace("    return torch.randn", "    os.abort()\n    return torch.randn")
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4") == 1
    err = capsys.readouterr().err
    assert "SIGABRT" in err
    assert len(err.strip().splitlines()) == 1


def test_what_the_job_prints_does_not_mix_with_the_answer(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job.write_text("print('hello from the job')\n" + JOB)
    assert run("estimate", job, "--batch-size", 4, "--device", "t4", "--json") == 0
    assert json.loads(capfd.readouterr().out)["verdict"] == "fits"


def test_an_operator_without_a_fake_kernel_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = JOB + (
        "\nlibrary = torch.library.Library('jobs_own', 'DEF')\n"
        "library.define('twice(Tensor x) -> Tensor')\n"
        "library.impl('twice', lambda x: x.clone(), 'CPU')\n"
        "def loss(model, batch):\n    return torch.ops.jobs_own.twice(model(batch[0])).sum()\n"
    )
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4") == 1
    err = capsys.readouterr().err
    assert "jobs_own.twice" in err
    assert "fake tensors" in err


def test_a_model_nested_too_deep_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = JOB.replace(
        "    return nn.Sequential",
        "    def deeper(n):\n        return deeper(n + 1)\n    deeper(0)\n    return nn.Sequential",
    )
    assert run("estimate", write(tmp_path, text), "--batch-size", 4, "--device", "t4") == 1
    err = capsys.readouterr().err
    assert "nested too deep" in err
    assert len(err) < 5000


def test_devices_lists_and_looks_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("devices") == 0
    text = capsys.readouterr().out
    assert "rtx-4090" in text
    assert "k80" in text
    assert run("devices", "A100", "--json") == 0
    [gpu] = json.loads(capsys.readouterr().out)
    assert gpu["name"] == "a100-40gb"
    assert gpu["usable_memory"] < 40 * 2**30


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version"], ["--help"], ["estimate", "--help"], ["replay", "--help"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
    assert "Exit codes" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "is_kept"), [((), False), (("--writes",), True), (("--write-files",), True)])
def test_what_a_script_writes_is_kept_where_that_is_asked_for(
    tmp_path: Path, words: tuple[str, ...], is_kept: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "model = torch.nn.Linear(8, 8).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(2):\n"
        "    model(torch.ones(4, 8, device='cuda')).sum().backward()\n"
        "    optimizer.step()\n"
        "open(sys.argv[1], 'w').write('done')\n"
    )
    log = tmp_path / "log.txt"
    assert run("run", "--device", "a100-40gb", *words, "--json", "--", script, log) == 0
    assert json.loads(capsys.readouterr().out)["script"]["optimizer_steps"] == 2
    assert log.exists() is is_kept
