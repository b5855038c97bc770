from __future__ import annotations

import json
from pathlib import Path

import pytest

from campaign_builder import MIB
from equation_builder import write_store
from oomcast.cli import main


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("equation")
    write_store(folder / "runs.db")
    assert main(["equation", "fit", str(folder / "runs.db"), "--output", str(folder / "small.json")]) == 0
    return folder


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    printed = capsys.readouterr().err
    assert printed.startswith("oomcast: ")
    assert "Traceback" not in printed
    assert len(printed.strip().splitlines()) == 1
    return printed


def test_fit_tells_the_equation_and_its_error(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, output = str(fitted / "runs.db"), str(fitted / "again.json")
    options = ["--keep-out", "0.25", "--seed", "1", "--where", "depth=3", "--json"]
    assert main(["equation", "fit", store, "--output", output, *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["names"] == ["batch_size", "width"]
    assert told["runs"] == 12
    assert told["errors"]["kept_out"] < 0.001
    assert told["search"]["seed"] == 1
    assert told["path"] == output


def test_the_same_seed_finds_the_same_equation(fitted: Path) -> None:
    store, output = str(fitted / "runs.db"), fitted / "same.json"
    assert main(["equation", "fit", store, "--output", str(output)]) == 0
    assert json.loads(output.read_text())["equation"] == json.loads((fitted / "small.json").read_text())["equation"]


def test_show_has_all_forms(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["equation", "show", str(fitted / "small.json")]) == 0
    printed = capsys.readouterr().out
    for words in ("memory = ", r"\mathrm{width}", "def memory(batch_size, width):", "Pareto front", "16 runs"):
        assert words in printed


def test_predict_inside_and_beyond(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(fitted / "small.json")
    assert main(["equation", "predict", file, "batch_size=32", "width=100", "depth=3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["total"] == pytest.approx(300 * MIB + 4000 * 32 * 100, rel=0.002)
    assert told["extrapolated"] is False
    assert main(["equation", "predict", file, "batch_size=32", "width=4096"]) == 0
    assert "outside the hull of the samples" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "FILE", "batch_size=32"], "needs width"),
        (["predict", "FILE", "batch_size=32", "width=64", "depth=9"], "depth was 3 in every run"),
        (["predict", "FILE", "batch_size=32", "width=64", "hight=9"], "has no parameter 'hight'"),
        (["predict", "FILE", "width"], "write NAME=VALUE"),
        (["predict", "FILE", "batch_size=32", "width=NaN"], "must be a finite number"),
        (["predict", "FILE", "batch_size=32", "width=wide"], "must be a finite number"),
        (["predict", "STORE", "batch_size=32"], "is not a file of oomcast equation fit"),
        (["show", "missing.json"], "cannot be read"),
        (["fit", "missing.db", "--output", "x.json"], "there is no store missing.db"),
        (["fit", "STORE", "--output", "x.json", "--engine", "pandora"], "the engine must be one of"),
        (["fit", "STORE", "--output", "x.json", "--config", "missing.toml"], "missing.toml"),
        (["fit", "STORE", "--output", "x.json", "--template", "vgg"], "no finished run"),
        (["fit", "STORE", "--output", "no/such/folder.json"], "cannot write"),
        (["fit", "STORE", "--output", "x.json", "--keep-out", "0.6"], "too few"),
    ],
)
def test_mistakes_are_one_sentence(
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"FILE": str(fitted / "small.json"), "STORE": str(fitted / "runs.db")}
    assert main(["equation", *(places.get(argument, argument) for argument in arguments)]) == 2
    assert words in one_sentence(capsys)


def test_estimate_by_the_equation(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--device", "cpu", "--estimator", "equation", "--equation", str(fitted / "small.json"), "--json"]
    assert main(["estimate", "template:mlp,width=64", "--batch-size", "512", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["device_total"] == pytest.approx(300 * MIB + 4000 * 512 * 64, rel=0.002)
    assert any("outside the hull of the samples" in sentence for sentence in told["assumptions"])
    assert main(["estimate", "template:mlp", "--batch-size", "8", "--device", "cpu", "--estimator", "equation"]) == 2
    assert "--equation FILE" in one_sentence(capsys)
