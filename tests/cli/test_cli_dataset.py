"""`oomcast dataset`: what people type, what they read, and mistakes told in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomcast.cli import main
from oomcast.methods.gpumemnet import Layer, LayerFeatures
from oomcast.methods.gpumemnet.dataset import Dataset, Label, Network, Row, read_dataset
from oomcast.methods.gpumemnet.dataset import build as building
from oomcast.methods.gpumemnet.dataset.labelling import Labeller
from oomcast.methods.gpumemnet.dataset.rows import flatten, row_id


class WithoutTorch(Labeller):
    def __call__(self, given: tuple[Network, Label | None]) -> tuple[str, dict[str, Any]]:
        network, _ = given
        label = Label("simulator", self.device, self.environment, self.optimizer, self.precision, 1, 2, 3 << 20, "fits")
        features = LayerFeatures((Layer("linear", 4, 8),), network.batch_size, 8, 4, network.activation)
        return row_id(network), flatten(Row(row_id(network), network, label, features, None))


@pytest.fixture(autouse=True)
def _quick_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "Labeller", WithoutTorch)


def build(path: Path, *options: str) -> int:
    return main(["dataset", "build", str(path), "--processes", "1", *options])


def test_build_and_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "networks.parquet"
    assert build(path, "--rows", "42", "--kinds", "mlp", "cnn", "--device", "rtx-3090", "--most-memory", "2GiB") == 0
    told = capsys.readouterr().out
    assert "42 rows, of which oom: 0" in told
    assert "batch_size" in told
    assert "cnn residual" in told
    assert f"42 rows in {path}" in told
    found = read_dataset(path)
    assert {row.network.kind for row in found.rows} == {"mlp", "cnn"}
    assert found.metadata["settings"]["most_bytes"] == 2 << 30
    assert main(["dataset", "show", str(path), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["rows"] == 42
    assert set(plain["uniformity"]["kinds"]["cnn"]["features"]) >= {"width", "depth", "channels", "activation"}


def test_options_reach_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "networks.csv"
    assert (
        build(path, "--rows", "4", "--kinds", "transformer", "--architectures", "dense", "--optimizer", "sgd",
              "--precision", "amp-bf16", "--environment", "torch-2.8-cu128", "--spread", "features", "--seed", "7")
        == 0
    )  # fmt: skip
    found = read_dataset(path)
    assert {row.network.architecture for row in found.rows} == {"dense"}
    assert {(row.label.optimizer, row.label.precision, row.label.environment) for row in found.rows} == {
        ("sgd", "amp-bf16", "torch-2.8-cu128")
    }
    assert found.metadata["settings"]["even_peaks"] is False
    assert found.metadata["settings"]["seed"] == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rows", "0"], "rows of a data set must be at least 1, not 0"),
        (["--device", "a1000-40gb"], "a1000-40gb"),
        (["--architectures", "hour-glass"], "unknown architecture 'hour-glass'; did you mean hourglass?"),
        (["--kinds", "rnn"], "unknown kind of network 'rnn'"),
        (["--labels", "real"], "unknown source of labels 'real'"),
        (["--device", "cpu"], "for a CPU, add --labels runs"),
        (["--spread", "evenly"], "--spread is features or both, not 'evenly'"),
        (["--processes", "0"], "number of processes must be at least 1, not 0"),
        (["--environment", "torch-9"], "torch-9"),
        (["--most-memory", "1KiB"], "ask for fewer rows or for more memory"),
    ],
)
def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert build(tmp_path / "networks.csv", "--rows", "3", *options) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("networks.json", "ends in .parquet or .csv, not 'networks.json'"),
        ("missing/networks.csv", "make it first"),
    ],
)
def test_places_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    assert build(tmp_path / name, "--rows", "3") == 2
    assert said in capsys.readouterr().err


def test_an_unfinished_build_with_other_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "networks.csv"

    def interrupted(*_: object) -> Dataset:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building, "_assemble", interrupted)
        assert build(path, "--rows", "3") == 130
    assert build(path, "--rows", "3", "--seed", "1") == 2
    assert "unfinished build with other settings: seed 0, not 1. Finish it with those" in capsys.readouterr().err
    assert build(path, "--rows", "3", "--seed", "1", "--restart") == 0
    assert build(path, "--rows", "3") == 2
    assert "exists and was built with other settings" in capsys.readouterr().err


def test_show_a_file_of_another_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    assert main(["dataset", "show", str(path)]) == 2
    assert "the columns id, kind, architecture" in capsys.readouterr().err
    assert main(["dataset", "show", str(tmp_path / "nothing.parquet")]) == 2
    assert "there is no file" in capsys.readouterr().err


def test_train_takes_files_not_a_folder_of_published_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dataset", "train", str(tmp_path), "--output", str(tmp_path / "out.bin")]) == 2
    assert "python -m lab train" in capsys.readouterr().err
    assert main(["dataset", "train", str(tmp_path / "none.csv"), "--output", str(tmp_path / "out.bin")]) == 2
    assert "there is no file" in capsys.readouterr().err
