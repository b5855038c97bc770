"""`oomcast bench accuracy`, from its options to its table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from oomcast.cli._bench import add_to
from oomcast.errors import BadInput, UnknownName

HEADER = "Filename,Total Parameters,Batch Size,Max GPU Memory (MiB)"
ROWS = (
    "input:8_output:2_depth:2_arch:pyramid_batch:16.out,52,16,1479",
    "input:8_output:2_depth:1_arch:uniform_batch:16.out,90,16,1480",
)


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    options = parser.parse_args(["bench", "accuracy", *arguments])
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
