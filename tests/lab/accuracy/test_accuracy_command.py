"""`python -m lab accuracy`, from its options to its table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from lab.accuracy.command import add_to
from oomcast.errors import BadInput, UnknownName

HEADER = "Filename,Total Parameters,Batch Size,Max GPU Memory (MiB)"
ROWS = (
    "input:8_output:2_depth:2_arch:pyramid_batch:16.out,52,16,1479",
    "input:8_output:2_depth:1_arch:uniform_batch:16.out,90,16,1480",
)


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    options = parser.parse_args(["accuracy", *arguments])
    code: int = options.run(options)
    return code


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gpumemnet_mlp_step1.csv").write_text("\n".join((HEADER, *ROWS)) + "\n", encoding="utf-8")
    return tmp_path


def test_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = str(folder / "cache")
    assert call(str(folder), "--estimators", "no-workspace", "horus", "--cache", cache, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [score["estimator"] for score in told["scores"]] == ["no-workspace", "no-workspace + constant", "horus"]
    assert all(score["rows"] == 2 and score["failed"] == 0 for score in told["scores"])
    # Both runs hold the same beside the allocator, to 1 MiB of 1,480.
    assert told["scores"][1]["mre"] < 0.002
    assert len(told["worst"]) == 2
    assert told["worst"][0]["why"]
    assert (told["campaigns"], told["kinds"], told["families"]) == ([], [], [])


def test_a_set_without_an_answer_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "model,method,seq_len,micro_batch,grad_accum,gpu,memory_gb"
    row = "Qwen-0.1B,LoRA,256,1,8,A100-SXM4-80G,6.7"
    (folder / "qwen_finetune.csv").write_text(f"{header}\n{row}\n", encoding="utf-8")
    assert call(str(folder), "--data", "qwen_finetune", "--cache", str(folder / "cache"), "--json") == 1
    shown = capsys.readouterr()
    assert "no case of qwen_finetune has an answer (1 tried)" in shown.err
    (reason,) = json.loads(shown.out)["failed"]["qwen_finetune"]
    assert "Qwen-0_1B" in reason


def test_families_and_a_plot(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = folder / "plot.svg"
    options = ("--estimators", "no-workspace", "--cache", str(folder / "cache"), "--families", "--plot", str(drawn))
    assert call(str(folder), *options) == 0
    shown = capsys.readouterr().out
    assert "By family" in shown
    assert "pyramid" in shown
    assert drawn.read_text(encoding="utf-8").count("<circle") == 2
    with pytest.raises(BadInput, match="there is no folder"):
        call(str(folder), *options[:-1], str(folder / "nowhere" / "plot.svg"))


def test_without_a_folder_it_runs_on_its_own_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--data", "gpumemnet_mlp_step1", "--rows", "2", "--estimators", "no-workspace", "--json")
    assert call(*options, "--cache", str(tmp_path)) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["scores"][0]["rows"] == 2
    assert told["scores"][0]["mre"] < 0.05
    with pytest.raises(UnknownName, match="gpumemnet_mlp_step1"):
        call("--data", "gpumemnet_mlp_step3")


def test_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(folder), "--estimators", "no-workspace", "--rows", "1", "--cache", str(folder / "cache")) == 0
    shown = capsys.readouterr().out
    assert "gpumemnet_mlp_step1" in shown
    assert "The worst rows" in shown


def test_bad_options(folder: Path) -> None:
    with pytest.raises(UnknownName, match="horus"):
        call(str(folder), "--estimators", "horuss")
    with pytest.raises(BadInput, match="--rows must be at least 1"):
        call(str(folder), "--rows", "0")
    with pytest.raises(BadInput, match="there is no folder"):
        call(str(folder / "nowhere"))


def test_an_interval_needs_many_families(folder: Path) -> None:
    with pytest.raises(BadInput, match="too few for an interval"):
        call(
            str(folder),
            *("--estimators", "no-workspace"),
            *("--cache", str(folder / "cache")),
            *("--write-interval", str(folder / "interval.json")),
        )
    assert not (folder / "interval.json").exists()
